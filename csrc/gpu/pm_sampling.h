// One burst of hardware counters by CUPTI's PM sampling: explicit, some seconds, one GPU.
//
// For a process of its own (pymon/probe/counters_child.py): it initialises CUDA, its calls can block and crash, and it
// locks the GPU's clocks. No call here is made on a thread that trains.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "gpu/pm_library.h"
#include "gpu/pm_plan.h"

namespace pymon {

struct PmOptions {
  int device = 0;                          // as CUDA counts them in this process
  uint32_t duration_ms = 2'000;            // 10 s at most
  uint64_t interval_ns = 500'000;          // as XLA's cupti_pm_sampler.h
  size_t buffer_bytes = size_t{64} << 20;  // on the GPU; as Kineto's
  uint32_t decode_ms = 100;
  Loading loading = Loading::kMayLoad;
  PmRights rights;
};

inline constexpr uint32_t kPmLongestMs = 10'000;

struct PmBurst {
  std::string chip, device;
  std::vector<size_t> metrics;   // places in kPmMetrics; those that are missing the chip has not
  uint64_t began_ns = 0, ended_ns = 0;
  std::vector<uint64_t> start_ns, end_ns;  // of the samples, on CUPTI's clock
  std::vector<double> values;              // a row of `metrics` for each sample
  uint64_t overflows = 0;        // times that the buffer on the GPU ran full
  uint64_t samples_lost = 0;     // that are missing between two others
  uint64_t samples_cut = 0;      // that lie half outside of the burst: averages cannot be cut
  bool stopped = false;          // before its time
};

class PmSampler {
 public:
  // All that may refuse a burst, before any counter runs; the error says why in words.
  static Result<std::unique_ptr<PmSampler>> arm(const PmOptions& options);
  ~PmSampler();  // gives everything back, in order
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  // Samples until the time is up or `stop` is set, decoding on the way. Once.
  Result<PmBurst> run(const std::atomic<bool>& stop);

 private:
  PmSampler(const PmLibrary& library, const PmOptions& options) : library_(library), options_(options) {}
  std::string check_device();
  std::string plan();
  std::string configure();
  std::string decode(PmBurst* burst);
  std::string keep_samples(PmBurst* burst);
  std::string clear_image();
  std::string error(const char* what, cupti::Result result) const;
  uint64_t now_ns() const;

  PmLibrary library_;
  PmOptions options_;
  std::string chip_, device_;
  bool by_cycles_ = false;  // the trigger of the samples
  bool initialised_ = false, running_ = false;
  void* object_ = nullptr;
  std::unique_ptr<PmPlan> plan_;
  std::vector<uint8_t> image_;  // of counter data; decoded into, read, cleared
};

}  // namespace pymon
