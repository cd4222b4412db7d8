#include "trace/sums.h"

#include <algorithm>

#include "trace/frames.h"
#include "trace/idle.h"
#include "trace/walk.h"
#include "trace/window.h"

namespace pymon::trace {
namespace {

constexpr size_t kTop = 20;

void add_loader(const Reader& reader, const Intervals& window, Intervals* loader_out, Loader* out) {
  Intervals loader;
  for (const HostEvent& event : reader.host()) {
    if (event.kind != Kind::kAnnotation && event.kind != Kind::kOp) continue;
    const std::string_view name = reader.names().at(event.name);
    if (name.substr(0, 21) != "enumerate(DataLoader)") continue;
    loader.push_back({event.ts_ns, event.end_ns()});
    if (within_ns(window, event.ts_ns, event.end_ns()) == 0) continue;
    ++out->calls_total;
    out->single_total += name.find("_SingleProcess") != std::string_view::npos;
    out->multi_total += name.find("_MultiProcess") != std::string_view::npos;
    out->longest_ns = std::max(out->longest_ns, event.dur_ns);
  }
  *loader_out = intersection(united(std::move(loader)), window);
  out->wait_ns = total_ns(*loader_out);
}

std::vector<Named> top(const std::vector<int64_t>& ns, const std::vector<uint64_t>& calls) {
  std::vector<Named> all;
  for (uint32_t name = 0; name < ns.size(); ++name) {
    if (calls[name] > 0) all.push_back({name, calls[name], ns[name]});
  }
  const size_t kept = std::min(kTop, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(kept), all.end(),
                    [](const Named& a, const Named& b) { return a.ns != b.ns ? a.ns > b.ns : a.name < b.name; });
  all.resize(kept);
  return all;
}

void add_kernels(const Reader& reader, const Intervals& window, Sums* out) {
  std::vector<int64_t> ns(reader.names().size());
  std::vector<uint64_t> calls(reader.names().size());
  for (const GpuEvent& event : reader.gpu()) {
    const int64_t inside = within_ns(window, event.ts_ns, event.end_ns());
    if (inside == 0) continue;
    add(&ns[event.name], inside);
    ++calls[event.name];
  }
  out->top_kernels = top(ns, calls);
}

void add_overhead(const Reader& reader, const Intervals& window, Credibility* out) {
  Intervals overhead;
  for (const HostEvent& event : reader.host()) {
    if (event.kind == Kind::kOverhead) overhead.push_back({event.ts_ns, event.end_ns()});
  }
  out->overhead_ns = total_ns(intersection(united(std::move(overhead)), window));
}

void judge_links(const Reader& reader, const Links& links, Credibility* out) {
  for (const GpuEvent& event : reader.gpu()) {
    const int64_t at = links.host_of(event.correlation);
    if (at < 0) ++out->gpu_without_launch_total;
    else out->kernels_before_launch_total += event.ts_ns < reader.host()[static_cast<size_t>(at)].ts_ns;
  }
  for (const HostEvent& event : reader.host()) {
    if (event.kind != Kind::kRuntime) continue;
    const std::string_view name = reader.names().at(event.name);
    const bool is_graph = name.find("GraphLaunch") != std::string_view::npos;
    if (!is_graph && name.find("LaunchKernel") == std::string_view::npos) continue;
    const bool is_empty = links.gpu_of(event.correlation) < 0;
    out->launches_without_kernel_total += is_empty;
    ++out->launches_total;
    out->graph_launches_total += is_graph;
    out->graph_launches_empty_total += is_graph && is_empty;
  }
}

}  // namespace

Sums sum_up(const Reader& reader, uint64_t given_steps) {
  Sums out;
  const Intervals window = find_window(reader, given_steps, &out);
  out.window_ns = total_ns(window);
  out.host_events_total = reader.host().size();
  out.gpu_events_total = reader.gpu().size();
  Intervals loader;
  add_loader(reader, window, &loader, &out.loader);
  add_overhead(reader, window, &out.credibility);
  const Links links(reader);
  judge_links(reader, links, &out.credibility);
  const Blocking blocking = find_blocking(reader, links);
  out.blocked_ns = total_ns(intersection(blocking.all, window));
  out.waited_ns = total_ns(intersection(blocking.reads, window));
  walk_host(reader, links, blocking, window, &out);
  if (!reader.gpu().empty() && !window.empty()) {
    out.gpu = gpu_sums(reader, links, blocking, loader, window);
    add_kernels(reader, window, &out);
  }
  return out;
}

}  // namespace pymon::trace
