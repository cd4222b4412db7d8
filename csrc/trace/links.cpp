#include "trace/links.h"

#include <algorithm>

#include "trace/frames.h"

namespace pymon::trace {
namespace {

// docs/facts.md, "blocked": shorter calls found nothing to wait for.
constexpr int64_t kShortestWaitNs = 10 * 1000;
constexpr int64_t kShortestCopyNs = 20 * 1000;
constexpr int64_t kProfilerStopNs = 10 * 1000 * 1000;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The device synchronise at the very end is the profiler's own stop, not the program's.
int64_t profiler_stop(const Reader& reader) {
  int64_t last_sync = -1;
  int64_t last_other_ns = INT64_MIN;
  const auto& host = reader.host();
  for (size_t i = 0; i < host.size(); ++i) {
    if (host[i].kind != Kind::kRuntime) continue;
    const std::string_view name = reader.names().at(host[i].name);
    const bool is_sync = name == "cudaDeviceSynchronize" || name == "hipDeviceSynchronize";
    if (is_sync && (last_sync < 0 || host[i].ts_ns > host[static_cast<size_t>(last_sync)].ts_ns)) {
      if (last_sync >= 0) last_other_ns = std::max(last_other_ns, host[static_cast<size_t>(last_sync)].ts_ns);
      last_sync = static_cast<int64_t>(i);
    } else {
      last_other_ns = std::max(last_other_ns, host[i].ts_ns);
    }
  }
  if (last_sync < 0 || last_other_ns == INT64_MIN) return last_sync;
  return host[static_cast<size_t>(last_sync)].ts_ns >= last_other_ns - kProfilerStopNs ? last_sync : -1;
}

}  // namespace

Links::Links(const Reader& reader) {
  const auto by_correlation = [](const Link& a, const Link& b) { return a.correlation < b.correlation; };
  for (uint32_t i = 0; i < reader.host().size(); ++i) {
    const HostEvent& event = reader.host()[i];
    if (event.kind == Kind::kRuntime && event.correlation >= 0) host_.push_back({event.correlation, i});
  }
  for (uint32_t i = 0; i < reader.gpu().size(); ++i) {
    if (reader.gpu()[i].correlation >= 0) gpu_.push_back({reader.gpu()[i].correlation, i});
  }
  std::stable_sort(host_.begin(), host_.end(), by_correlation);
  std::stable_sort(gpu_.begin(), gpu_.end(), by_correlation);
}

int64_t Links::find(const std::vector<Link>& links, int64_t correlation) {
  if (correlation < 0) return -1;
  auto after = std::upper_bound(links.begin(), links.end(), correlation,
                                [](int64_t wanted, const Link& link) { return wanted < link.correlation; });
  if (after == links.begin() || (--after)->correlation != correlation) return -1;
  return after->index;
}

bool copies_to_host(std::string_view name) { return contains(name, "DtoH") || contains(name, "Device -> Host"); }

bool copies_to_device(std::string_view name) { return contains(name, "HtoD") || contains(name, "Host -> Device"); }

Blocking find_blocking(const Reader& reader, const Links& links) {
  Blocking out;
  const auto& host = reader.host();
  out.is.resize(host.size());
  if (reader.gpu().empty()) return out;
  const int64_t stop = profiler_stop(reader);
  for (size_t i = 0; i < host.size(); ++i) {
    if (host[i].kind != Kind::kRuntime || static_cast<int64_t>(i) == stop) continue;
    const std::string_view name = reader.names().at(host[i].name);
    bool to_device = false;
    if (waits_for_gpu(name)) {
      if (host[i].dur_ns < kShortestWaitNs) continue;
    } else if (contains(name, "emcpy") && host[i].dur_ns >= kShortestCopyNs) {
      const int64_t at = links.gpu_of(host[i].correlation);
      if (at < 0) continue;
      const std::string_view copy = reader.names().at(reader.gpu()[static_cast<size_t>(at)].name);
      if (!contains(copy, "Pageable") && !contains(copy, "Host") && !contains(copy, "DtoH")) continue;
      to_device = copies_to_device(copy);
    } else {
      continue;
    }
    out.all.push_back({host[i].ts_ns, host[i].end_ns()});
    if (to_device) continue;
    out.reads.push_back({host[i].ts_ns, host[i].end_ns()});
    out.is[i] = true;
  }
  out.all = united(std::move(out.all));
  out.reads = united(std::move(out.reads));
  return out;
}

}  // namespace pymon::trace
