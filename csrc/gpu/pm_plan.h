// Plans a burst on the host: which of our metrics this chip has, and the image that configures the counters for them in
// one pass. Needs no GPU, only the chip's name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "gpu/pm_library.h"
#include "gpu/pm_metrics.h"

namespace pymon {

class PmPlan {
 public:
  // `availability` is cuptiPmSamplingGetCounterAvailability's image; may be empty. An error where the metrics take more
  // than one pass, which PM sampling has not, or where the chip has none of them. `library` must outlive the plan.
  static Result<PmPlan> made(const PmLibrary& library, const std::string& chip, const std::vector<uint8_t>& availability);

  PmPlan(PmPlan&& other) noexcept;
  PmPlan(const PmPlan&) = delete;
  PmPlan& operator=(const PmPlan&) = delete;
  ~PmPlan();

  const std::vector<size_t>& metrics() const { return metrics_; }  // places in kPmMetrics, of those that it has
  const std::vector<uint8_t>& config() const { return config_; }   // at one place as long as the plan lives
  std::vector<const char*>& names() { return names_; }             // NVIDIA's, as CUPTI takes them

  // The metrics of one decoded sample, in our units: as many as `metrics()`.
  cupti::Result evaluate(const std::vector<uint8_t>& image, size_t sample, double* values);

 private:
  explicit PmPlan(const PmLibrary& library) : library_(&library) {}

  const PmLibrary* library_;
  void* object_ = nullptr;
  std::vector<size_t> metrics_;
  std::vector<const char*> names_;
  std::vector<uint8_t> config_;
};

}  // namespace pymon
