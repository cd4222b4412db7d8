#include "trace/window.h"

#include <algorithm>
#include <map>

namespace pymon::trace {
namespace {

constexpr size_t kMaxSteps = 4096;

bool starts(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

struct Found {
  Intervals steps;
  std::map<uint32_t, std::vector<int64_t>> optimizer_ends;  // by name
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;

  void cover(int64_t begin, int64_t end) {
    first_ns = std::min(first_ns, begin);
    last_ns = std::max(last_ns, end);
  }
};

Found look(const Reader& reader, Sums* out) {
  Found found;
  for (const HostEvent& event : reader.host()) {
    if (event.kind != Kind::kOp && event.kind != Kind::kAnnotation) continue;
    found.cover(event.ts_ns, event.end_ns());
    const std::string_view name = reader.names().at(event.name);
    if (starts(name, "ProfilerStep#")) {
      found.steps.push_back({event.ts_ns, event.end_ns()});
    } else {
      out->ops_total += event.kind == Kind::kOp;
      if (starts(name, "Optimizer.step#")) found.optimizer_ends[event.name].push_back(event.end_ns());
    }
  }
  for (const GpuEvent& event : reader.gpu()) found.cover(event.ts_ns, event.end_ns());
  return found;
}

}  // namespace

Intervals find_window(const Reader& reader, uint64_t given_steps, Sums* out) {
  Found found = look(reader, out);
  if (found.first_ns >= found.last_ns) return {};
  if (!found.steps.empty()) {
    out->source = WindowSource::kProfilerSteps;
    out->steps_total = found.steps.size();
    for (const Interval& step : found.steps) {
      if (out->step_ns.size() < kMaxSteps) out->step_ns.push_back(step.end_ns - step.begin_ns);
    }
    return united(std::move(found.steps));
  }
  if (given_steps > 0) {
    out->source = WindowSource::kGiven;
    out->steps_total = given_steps;
    return {{found.first_ns, found.last_ns}};
  }
  std::vector<int64_t>* ends = nullptr;  // with several optimizers, the one that steps least
  for (auto& entry : found.optimizer_ends) {
    if (ends == nullptr || entry.second.size() < ends->size()) ends = &entry.second;
  }
  if (ends != nullptr && ends->size() >= 2) {
    std::sort(ends->begin(), ends->end());
    out->source = WindowSource::kOptimizerSteps;
    out->steps_total = ends->size() - 1;
    for (size_t i = 1; i < ends->size() && i <= kMaxSteps; ++i) out->step_ns.push_back((*ends)[i] - (*ends)[i - 1]);
    return {{ends->front(), ends->back()}};
  }
  out->source = WindowSource::kWholeTrace;
  return {{found.first_ns, found.last_ns}};
}

}  // namespace pymon::trace
