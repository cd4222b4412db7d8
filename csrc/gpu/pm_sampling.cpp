#include "gpu/pm_sampling.h"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace pymon {
namespace {

constexpr int kOldestCapability = 75;    // Turing; N release notes of 12.6
constexpr int kTimeTriggerFrom = 86;     // neither Turing nor GA100 (8.0) count time; N cupti_pmsampling.h
constexpr uint64_t kSysclkHz = 1'000'000'000;  // about, for them: samples carry their own times
constexpr uint64_t kRoom = 4;            // the image holds so many times what one decode brings: decodes may be late

void sleep_ms(uint32_t ms) {
  const timespec time{ms / 1000, static_cast<long>(ms % 1000) * 1'000'000};
  nanosleep(&time, nullptr);
}

uint64_t monotonic_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace

std::string PmSampler::error(const char* what, cupti::Result result) const {
  return result == cupti::kSuccess ? std::string() : pm_error(library_.cupti.api, what, result);
}

uint64_t PmSampler::now_ns() const {
  uint64_t now = 0;
  library_.cupti.api.cuptiGetTimestamp(&now);
  return now;
}

Result<std::unique_ptr<PmSampler>> PmSampler::arm(const PmOptions& options) {
  if (options.duration_ms == 0 || options.duration_ms > kPmLongestMs || options.interval_ns == 0) {
    return Error::because("a burst lasts 10 s at most");
  }
  Result<PmLibrary> library = load_pm(options.loading);
  if (!library.ok()) return library.error();
  if (std::string reason = why_no_rights(options.rights); !reason.empty()) return Error::because(std::move(reason));
  std::unique_ptr<PmSampler> sampler(new PmSampler(library.value(), options));
  for (const auto step : {&PmSampler::check_device, &PmSampler::plan, &PmSampler::configure}) {
    if (std::string reason = (sampler.get()->*step)(); !reason.empty()) return Error::because(std::move(reason));
  }
  return Result<std::unique_ptr<PmSampler>>(std::move(sampler));
}

std::string PmSampler::check_device() {
  const pm::CudaApi& cuda = library_.cuda;
  const auto failed = [](const char* what, cuda::Result result) {
    return std::string(what) + " fails with error " + std::to_string(result);
  };
  if (const cuda::Result result = cuda.cuInit(0); result != cuda::kSuccess) return failed("cuInit", result);
  int device = 0, major = 0, minor = 0;
  char name[256] = "";
  if (const auto result = cuda.cuDeviceGet(&device, options_.device); result != cuda::kSuccess) {
    return failed("cuDeviceGet", result);
  }
  cuda.cuDeviceGetName(name, sizeof name, device);
  cuda.cuDeviceGetAttribute(&major, pm::kCapabilityMajor, device);
  cuda.cuDeviceGetAttribute(&minor, pm::kCapabilityMinor, device);
  device_ = name;
  const int capability = 10 * major + minor;
  if (capability < kOldestCapability) return "no PM sampling before Turing, and this is " + device_;
  if (device_.find(" MIG ") != std::string::npos) return "PM sampling samples whole GPUs, and this is " + device_;
  by_cycles_ = capability < kTimeTriggerFrom;
  return {};
}

std::string PmSampler::plan() {
  auto initialise = pm::params<pm::ProfilerInitialize>();
  cupti::Result result = library_.pm.cuptiProfilerInitialize(&initialise);
  if (result != cupti::kSuccess) return error("cuptiProfilerInitialize", result);
  initialised_ = true;
  auto chip = pm::params<pm::ChipName>();
  chip.device = static_cast<size_t>(options_.device);
  result = library_.pm.cuptiDeviceGetChipName(&chip);
  if (result != cupti::kSuccess) return error("cuptiDeviceGetChipName", result);
  chip_ = chip.name;
  auto available = pm::params<pm::CounterAvailability>();
  available.device = chip.device;
  result = library_.pm.cuptiPmSamplingGetCounterAvailability(&available);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingGetCounterAvailability", result);
  std::vector<uint8_t> availability(available.bytes);
  available.image = availability.data();
  result = library_.pm.cuptiPmSamplingGetCounterAvailability(&available);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingGetCounterAvailability", result);
  Result<PmPlan> made = PmPlan::made(library_, chip_, availability);
  if (!made.ok()) return made.error().text;
  plan_ = std::make_unique<PmPlan>(std::move(made.value()));
  return {};
}

std::string PmSampler::configure() {
  auto enable = pm::params<pm::Enable>();
  enable.device = static_cast<size_t>(options_.device);
  cupti::Result result = library_.pm.cuptiPmSamplingEnable(&enable);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingEnable", result);
  object_ = enable.object;
  auto config = pm::params<pm::SetConfig>();
  config.object = object_;
  config.config = plan_->config().data();
  config.config_bytes = plan_->config().size();
  config.buffer_bytes = options_.buffer_bytes;
  config.interval = by_cycles_ ? options_.interval_ns * kSysclkHz / 1'000'000'000 : options_.interval_ns;
  config.trigger = by_cycles_ ? pm::kSysclkInterval : pm::kTimeInterval;
  config.append = pm::kKeepLatest;
  result = library_.pm.cuptiPmSamplingSetConfig(&config);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingSetConfig", result);
  auto size = pm::params<pm::CounterDataSize>();
  size.object = object_;
  size.names = plan_->names().data();
  size.count = plan_->names().size();
  size.samples = static_cast<uint32_t>(kRoom * options_.decode_ms * 1'000'000 / options_.interval_ns + kRoom);
  result = library_.pm.cuptiPmSamplingGetCounterDataSize(&size);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingGetCounterDataSize", result);
  image_.resize(size.bytes);
  return clear_image();
}

std::string PmSampler::clear_image() {
  auto params = pm::params<pm::CounterDataInitialize>();
  params.object = object_;
  params.bytes = image_.size();
  params.image = image_.data();
  return error("cuptiPmSamplingCounterDataImageInitialize",
               library_.pm.cuptiPmSamplingCounterDataImageInitialize(&params));
}

Result<PmBurst> PmSampler::run(const std::atomic<bool>& stop) {
  PmBurst burst;
  burst.chip = chip_;
  burst.device = device_;
  burst.metrics = plan_->metrics();
  burst.began_ns = now_ns();
  auto start = pm::params<pm::Start>();
  start.object = object_;
  if (const auto result = library_.pm.cuptiPmSamplingStart(&start); result != cupti::kSuccess) {
    return Error::because(error("cuptiPmSamplingStart", result));
  }
  running_ = true;
  const uint64_t until_ms = monotonic_ms() + options_.duration_ms;
  for (uint64_t now_ms = monotonic_ms(); now_ms < until_ms && !stop; now_ms = monotonic_ms()) {
    sleep_ms(static_cast<uint32_t>(std::min<uint64_t>(options_.decode_ms, until_ms - now_ms)));
    if (std::string reason = decode(&burst); !reason.empty()) return Error::because(std::move(reason));
  }
  burst.stopped = stop;
  auto end = pm::params<pm::Stop>();
  end.object = object_;
  const cupti::Result ended = library_.pm.cuptiPmSamplingStop(&end);
  running_ = false;
  burst.ended_ns = now_ns();
  if (ended != cupti::kSuccess) return Error::because(error("cuptiPmSamplingStop", ended));
  if (std::string reason = decode(&burst); !reason.empty()) return Error::because(std::move(reason));
  return burst;
}

// Until the buffer on the GPU is empty: an image that is full leaves the rest for the next round.
std::string PmSampler::decode(PmBurst* burst) {
  for (;;) {
    auto params = pm::params<pm::DecodeData>();
    params.object = object_;
    params.image = image_.data();
    params.bytes = image_.size();
    const cupti::Result result = library_.pm.cuptiPmSamplingDecodeData(&params);
    if (result != cupti::kSuccess && result != pm::kOutOfMemory) return error("cuptiPmSamplingDecodeData", result);
    if (params.overflow != 0 || result == pm::kOutOfMemory) ++burst->overflows;
    const size_t before = burst->start_ns.size();
    if (std::string reason = keep_samples(burst); !reason.empty()) return reason;
    if (std::string reason = clear_image(); !reason.empty()) return reason;
    if (params.stop_reason != pm::kStopImageFull || burst->start_ns.size() == before) return {};
  }
}

std::string PmSampler::keep_samples(PmBurst* burst) {
  auto info = pm::params<pm::CounterDataInfo>();
  info.image = image_.data();
  info.bytes = image_.size();
  cupti::Result result = library_.pm.cuptiPmSamplingGetCounterDataInfo(&info);
  if (result != cupti::kSuccess) return error("cuptiPmSamplingGetCounterDataInfo", result);
  const size_t width = burst->metrics.size();
  for (size_t i = 0; i < info.completed; ++i) {
    auto sample = pm::params<pm::SampleInfo>();
    sample.object = object_;
    sample.image = image_.data();
    sample.bytes = image_.size();
    sample.sample = i;
    result = library_.pm.cuptiPmSamplingCounterDataGetSampleInfo(&sample);
    if (result != cupti::kSuccess) return error("cuptiPmSamplingCounterDataGetSampleInfo", result);
    const bool cut = sample.start < burst->began_ns || (burst->ended_ns != 0 && sample.end > burst->ended_ns);
    if (cut || sample.end <= sample.start) {
      ++burst->samples_cut;
      continue;
    }
    burst->values.resize(burst->values.size() + width);
    double* row = burst->values.data() + burst->values.size() - width;
    result = plan_->evaluate(image_, i, row);
    if (result != cupti::kSuccess) return error("cuptiProfilerHostEvaluateToGpuValues", result);
    if (!burst->end_ns.empty() && sample.start > burst->end_ns.back()) {
      const double gap = static_cast<double>(sample.start - burst->end_ns.back());
      burst->samples_lost += static_cast<uint64_t>(std::lround(gap / static_cast<double>(sample.end - sample.start)));
    }
    burst->start_ns.push_back(sample.start);
    burst->end_ns.push_back(sample.end);
  }
  return {};
}

PmSampler::~PmSampler() {
  if (running_) {
    auto stop = pm::params<pm::Stop>();
    stop.object = object_;
    library_.pm.cuptiPmSamplingStop(&stop);
  }
  if (object_ != nullptr) {
    auto disable = pm::params<pm::Disable>();
    disable.object = object_;
    library_.pm.cuptiPmSamplingDisable(&disable);
  }
  plan_.reset();  // after Disable: CUPTI keeps the pointer to its config image
  if (initialised_) {
    auto params = pm::params<pm::ProfilerDeInitialize>();  // once: a second one crashes
    library_.pm.cuptiProfilerDeInitialize(&params);
  }
}

}  // namespace pymon
