#include "gpu/pm_plan.h"

namespace pymon {
namespace {

using Bytes = std::vector<uint8_t>;

cupti::Result new_object(const pm::Api& api, const std::string& chip, const Bytes& availability, void** object) {
  auto params = pm::params<pm::HostInitialize>();
  params.type = pm::kTypePmSampling;
  params.chip = chip.c_str();
  params.availability = availability.empty() ? nullptr : availability.data();
  const cupti::Result result = api.cuptiProfilerHostInitialize(&params);
  *object = params.object;
  return result;
}

void free_object(const pm::Api& api, void* object) {
  auto params = pm::params<pm::HostDeinitialize>();
  params.object = object;
  api.cuptiProfilerHostDeinitialize(&params);
}

cupti::Result add(const pm::Api& api, void* object, const char** names, size_t count) {
  auto params = pm::params<pm::ConfigAddMetrics>();
  params.object = object;
  params.names = names;
  params.count = count;
  return api.cuptiProfilerHostConfigAddMetrics(&params);
}

}  // namespace

Result<PmPlan> PmPlan::made(const PmLibrary& library, const std::string& chip, const Bytes& availability) {
  const pm::Api& api = library.pm;
  const auto failed = [&](const char* what, cupti::Result result) {
    return Error::because(pm_error(library.cupti.api, what, result));
  };
  PmPlan plan(library);
  // An object of its own for each question: one that refused a metric refuses all that come after it.
  for (size_t i = 0; i < kPmMetricCount; ++i) {
    void* object = nullptr;
    const cupti::Result result = new_object(api, chip, availability, &object);
    if (result != cupti::kSuccess) return failed("cuptiProfilerHostInitialize", result);
    const char* name = kPmMetrics[i].cupti;
    if (add(api, object, &name, 1) == cupti::kSuccess) {
      plan.metrics_.push_back(i);
      plan.names_.push_back(name);
    }
    free_object(api, object);
  }
  if (plan.metrics_.empty()) return Error::because("CUPTI knows none of the metrics for this chip (" + chip + ")");

  cupti::Result result = new_object(api, chip, availability, &plan.object_);
  if (result != cupti::kSuccess) return failed("cuptiProfilerHostInitialize", result);
  // All in one call: what is added by another one is planned into a pass of its own.
  result = add(api, plan.object_, plan.names_.data(), plan.names_.size());
  if (result != cupti::kSuccess) return failed("cuptiProfilerHostConfigAddMetrics", result);
  auto size = pm::params<pm::ConfigImageSize>();
  size.object = plan.object_;
  result = api.cuptiProfilerHostGetConfigImageSize(&size);
  if (result != cupti::kSuccess) return failed("cuptiProfilerHostGetConfigImageSize", result);
  plan.config_.resize(size.bytes);
  auto image = pm::params<pm::ConfigImage>();
  image.object = plan.object_;
  image.bytes = plan.config_.size();
  image.image = plan.config_.data();
  result = api.cuptiProfilerHostGetConfigImage(&image);
  if (result != cupti::kSuccess) return failed("cuptiProfilerHostGetConfigImage", result);
  auto passes = pm::params<pm::NumOfPasses>();
  passes.bytes = plan.config_.size();
  passes.image = plan.config_.data();
  result = api.cuptiProfilerHostGetNumOfPasses(&passes);
  if (result != cupti::kSuccess) return failed("cuptiProfilerHostGetNumOfPasses", result);
  if (passes.passes != 1) {
    return Error::because("the counters take " + std::to_string(passes.passes) + " passes on this chip (" + chip +
                          "), and PM sampling has one");
  }
  return Result<PmPlan>(std::move(plan));
}

PmPlan::PmPlan(PmPlan&& other) noexcept
    : library_(other.library_),
      object_(std::exchange(other.object_, nullptr)),
      metrics_(std::move(other.metrics_)),
      names_(std::move(other.names_)),
      config_(std::move(other.config_)) {}

PmPlan::~PmPlan() {
  if (object_ != nullptr) free_object(library_->pm, object_);
}

cupti::Result PmPlan::evaluate(const Bytes& image, size_t sample, double* values) {
  auto params = pm::params<pm::EvaluateToGpuValues>();
  params.object = object_;
  params.image = image.data();
  params.bytes = image.size();
  params.sample = sample;
  params.names = names_.data();
  params.count = names_.size();
  params.values = values;
  const cupti::Result result = library_->pm.cuptiProfilerHostEvaluateToGpuValues(&params);
  for (size_t i = 0; i < metrics_.size(); ++i) values[i] *= kPmMetrics[metrics_[i]].scale;
  return result;
}

}  // namespace pymon
