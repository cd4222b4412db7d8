#include "trace/idle.h"

#include <algorithm>

#include "trace/frames.h"

namespace pymon::trace {
namespace {

constexpr int64_t kSyncSlackNs = 30 * 1000;  // docs/facts.md, "idle by sync"
constexpr int64_t kAheadNs = 20 * 1000;      // docs/facts.md, "sync recoverable": the host is ahead of the GPU again
constexpr double kAllocatorShare = 0.3;      // docs/facts.md, "idle by allocator"

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// A GPU event with its launch, in order of its start.
struct Launched {
  int64_t ts_ns;
  int64_t launch_ns;  // INT64_MIN: unknown
  int64_t lead_ns;    // from the end of the launch to the start; -1: unknown
};

struct ByClass {
  Intervals busy, compute, comm, copy;
};

ByClass classify(const Reader& reader, const Intervals& window) {
  std::vector<int8_t> is_comm(reader.names().size(), -1);
  ByClass out;
  for (const GpuEvent& event : reader.gpu()) {
    const Interval piece{event.ts_ns, event.end_ns()};
    out.busy.push_back(piece);
    if (event.kind != Kind::kKernel) {
      out.copy.push_back(piece);
      continue;
    }
    int8_t& comm = is_comm[event.name];
    if (comm < 0) comm = is_communication(reader.names().at(event.name));
    (comm != 0 ? out.comm : out.compute).push_back(piece);
  }
  for (Intervals* set : {&out.busy, &out.compute, &out.comm, &out.copy}) {
    *set = intersection(united(std::move(*set)), window);
  }
  return out;
}

std::vector<Launched> launched(const Reader& reader, const Links& links) {
  std::vector<Launched> out;
  out.reserve(reader.gpu().size());
  for (const GpuEvent& event : reader.gpu()) {
    const int64_t at = links.host_of(event.correlation);
    if (at < 0) {
      out.push_back({event.ts_ns, INT64_MIN, -1});
      continue;
    }
    const HostEvent& launch = reader.host()[static_cast<size_t>(at)];
    out.push_back({event.ts_ns, launch.ts_ns, std::max<int64_t>(0, event.ts_ns - launch.end_ns())});
  }
  std::stable_sort(out.begin(), out.end(), [](const Launched& a, const Launched& b) { return a.ts_ns < b.ts_ns; });
  return out;
}

Intervals allocator_calls(const Reader& reader, const Intervals& window) {
  static constexpr std::string_view kNames[] = {"cudaMalloc", "cudaFree",  "cudaHostAlloc", "cudaFreeHost",
                                                "hipMalloc",  "hipFree",   "hipHostMalloc"};
  Intervals out;
  for (const HostEvent& event : reader.host()) {
    if (event.kind != Kind::kRuntime) continue;
    const std::string_view name = reader.names().at(event.name);
    if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) {
      out.push_back({event.ts_ns, event.end_ns()});
    }
  }
  return intersection(united(std::move(out)), window);
}

// Charges idle time that follows a waiting call to that call, until the host is ahead of the GPU again. Without the call
// no more is won than it lasted, nor more than the idle time it left behind.
class SyncCharge {
 public:
  explicit SyncCharge(const Intervals& reads) : reads_(reads), charged_(reads.size()) {}

  void saw(const Launched& event) {
    if (event.lead_ns >= kAheadNs) ahead_at_ns_ = std::max(ahead_at_ns_, event.launch_ns);
  }
  void idle(int64_t launch_ns, int64_t ns) {
    auto after = std::upper_bound(reads_.begin(), reads_.end(), launch_ns,
                                  [](int64_t when, const Interval& call) { return when < call.end_ns; });
    if (after == reads_.begin()) return;
    const size_t call = static_cast<size_t>(after - reads_.begin()) - 1;
    if (ahead_at_ns_ <= reads_[call].end_ns) charged_[call] += ns;
  }
  int64_t total_ns() const {
    int64_t total = 0;
    for (size_t i = 0; i < reads_.size(); ++i) {
      total += std::min(charged_[i], reads_[i].end_ns - reads_[i].begin_ns);
    }
    return total;
  }

 private:
  const Intervals& reads_;
  std::vector<int64_t> charged_;
  int64_t ahead_at_ns_ = INT64_MIN;
};

void add_idle_causes(const std::vector<Launched>& events, const Intervals& idle, const Intervals& loader,
                     const Intervals& allocator, const Blocking& blocking, GpuSums* out) {
  std::vector<int64_t> waits_end;
  for (const Interval& wait : blocking.all) waits_end.push_back(wait.end_ns);
  SyncCharge charge(blocking.reads);
  size_t next = 0;
  for (const Interval& gap : idle) {
    for (; next < events.size() && events[next].ts_ns < gap.end_ns; ++next) charge.saw(events[next]);
    const bool has_launch = next < events.size() && events[next].launch_ns != INT64_MIN;
    const int64_t launch_ns = has_launch ? events[next].launch_ns : gap.end_ns;
    const int64_t under_loader = within_ns(loader, gap.begin_ns, gap.end_ns);
    const int64_t rest = gap.end_ns - gap.begin_ns - under_loader;
    out->idle_by_data_ns += under_loader;
    if (has_launch && launch_ns < gap.begin_ns) {
      out->idle_by_gpu_ns += rest;
      continue;
    }
    const auto after = std::upper_bound(waits_end.begin(), waits_end.end(), launch_ns);
    const bool waited = after != waits_end.begin() && *(after - 1) >= gap.begin_ns - kSyncSlackNs;
    charge.idle(launch_ns, rest);
    if (under_loader == 0 && waited) {
      out->idle_by_sync_ns += rest;
    } else if (static_cast<double>(within_ns(allocator, gap.begin_ns, gap.end_ns)) >
               kAllocatorShare * static_cast<double>(gap.end_ns - gap.begin_ns)) {
      out->idle_by_allocator_ns += rest;
    } else {
      out->idle_by_host_ns += rest;
    }
  }
  out->sync_recoverable_ns = charge.total_ns();
}

int64_t median(std::vector<int64_t>* values) {
  if (values->empty()) return -1;
  const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

void add_copies(const Reader& reader, const Links& links, GpuSums* out) {
  for (const GpuEvent& event : reader.gpu()) {
    if (event.kind != Kind::kCopy || !contains(reader.names().at(event.name), "HtoD (Pageable")) continue;
    add(&out->h2d_pageable_bytes, std::max<int64_t>(0, event.bytes));
    const int64_t at = links.host_of(event.correlation);
    if (at >= 0) add(&out->h2d_pageable_api_ns, reader.host()[static_cast<size_t>(at)].dur_ns);
  }
}

}  // namespace

GpuSums gpu_sums(const Reader& reader, const Links& links, const Blocking& blocking, const Intervals& loader,
                 const Intervals& window) {
  const ByClass sets = classify(reader, window);
  GpuSums out;
  out.busy_ns = total_ns(sets.busy);
  out.compute_ns = total_ns(sets.compute);
  out.comm_ns = total_ns(sets.comm);
  out.copy_ns = total_ns(sets.copy);
  out.exposed_comm_ns = total_ns(difference(sets.comm, sets.compute));
  out.exposed_copy_ns = total_ns(difference(difference(sets.copy, sets.compute), sets.comm));
  const Intervals idle = difference(window, sets.busy);
  out.idle_ns = total_ns(idle);
  const std::vector<Launched> events = launched(reader, links);
  add_idle_causes(events, idle, loader, allocator_calls(reader, window), blocking, &out);
  std::vector<int64_t> leads, durations;
  for (const Launched& event : events) {
    if (event.lead_ns >= 0) leads.push_back(event.lead_ns);
  }
  for (const GpuEvent& event : reader.gpu()) {
    if (event.kind == Kind::kKernel) durations.push_back(event.dur_ns);
  }
  out.kernels_total = durations.size();
  out.launch_to_start_p50_ns = median(&leads);
  out.kernel_p50_ns = median(&durations);
  add_copies(reader, links, &out);
  return out;
}

}  // namespace pymon::trace
