#include "bind/probe_counters.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "gpu/pm_sampling.h"

namespace py = pybind11;

namespace pymon {
namespace {

std::atomic<bool> g_stop{false};

struct Outcome {
  const char* status;
  std::string reason;
  PmBurst burst;
};

Outcome burst_of(const PmOptions& options) {
  Result<std::unique_ptr<PmSampler>> sampler = PmSampler::arm(options);
  if (!sampler.ok()) return {"refused", sampler.error().text, {}};
  Result<PmBurst> burst = sampler.value()->run(g_stop);
  if (!burst.ok()) return {"failed", burst.error().text, {}};
  return {"written", "", std::move(burst.value())};
}

py::list list_of(const std::vector<uint64_t>& numbers) {
  py::list made(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) made[i] = numbers[i];
  return made;
}

py::dict counters_burst(int device, double duration_s, uint64_t interval_ns) {
  PmOptions options;
  options.device = device;
  options.duration_ms = static_cast<uint32_t>(duration_s * 1000);
  options.interval_ns = interval_ns;
  const Outcome outcome = [&] {
    py::gil_scoped_release released;
    return burst_of(options);
  }();
  const PmBurst& burst = outcome.burst;
  py::dict metrics;
  for (size_t m = 0; m < burst.metrics.size(); ++m) {
    py::list values(burst.start_ns.size());
    for (size_t i = 0; i < burst.start_ns.size(); ++i) values[i] = burst.values[i * burst.metrics.size() + m];
    metrics[kPmMetrics[burst.metrics[m]].name] = values;
  }
  py::dict result;
  result["status"] = outcome.status;
  result["reason"] = outcome.reason;
  result["device"] = burst.device;
  result["chip"] = burst.chip;
  result["began_ns"] = burst.began_ns;
  result["ended_ns"] = burst.ended_ns;
  result["start_ns"] = list_of(burst.start_ns);
  result["end_ns"] = list_of(burst.end_ns);
  result["metrics"] = metrics;
  result["overflows"] = burst.overflows;
  result["samples_lost"] = burst.samples_lost;
  result["samples_cut"] = burst.samples_cut;
  result["stopped"] = burst.stopped;
  return result;
}

std::string counters_why_not() {
  if (std::string reason = why_no_rights(PmRights{}); !reason.empty()) return reason;
  const Result<PmLibrary> library = load_pm(Loading::kMayLoad);
  return library.ok() ? std::string() : library.error().text;
}

}  // namespace

void bind_counters(py::module_& module) {
  module.def("counters_burst", &counters_burst, py::arg("device"), py::arg("duration_s"), py::arg("interval_ns"),
             "Initialises CUDA and samples one GPU's counters; never in a process that trains. What became of it: status "
             "`written`, `refused` or `failed`, and with `written` the samples of each metric.");
  module.def("counters_stop", [] { g_stop = true; }, "Ends the burst that another thread makes.");
  module.def("counters_metrics", [] {
    py::list names;
    for (const PmMetric& metric : kPmMetrics) names.append(metric.name);
    return names;
  }, "What a burst asks for.");
  module.def("counters_why_not", &counters_why_not,
             "What is seen to keep bursts off here without initialising CUDA; empty where nothing is.");
}

}  // namespace pymon
