// The part of CUPTI's PM sampling, host profiler and target profiler that pymon calls, written from the documented ABI;
// no vendor header is needed or copied. tests/native/pm_abi.cpp holds every offset, size and number here against the
// headers of all CUPTI releases that have it.
//
// CUPTI tells versions of a struct by its size, which the caller gives: `params<T>()` makes each as it was in CUDA 12.8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/cuda_abi.h"
#include "gpu/cupti_abi.h"

namespace pymon::pm {

enum : cupti::Result {
  kInvalidOperation = 7,           // cuptiPmSamplingEnable: somebody has this GPU's counters already
  kOutOfMemory = 8,                // cuptiPmSamplingDecodeData: records were lost, the buffer on the GPU was full
  kHardwareBusy = 26,
  kNotSupported = 27,
  kVirtualized = 33,
  kVirtualizedPrivileges = 40,
  kConfidentialComputing = 41,
  kMiningDevice = 42,
  kMigDevice = 43,
  kSliDevice = 44,
  kWslDevice = 45,
  kInvalidChipName = 46,
};
enum : uint32_t { kTypePmSampling = 1 };   // CUpti_ProfilerType
enum : uint32_t { kSysclkInterval = 0, kTimeInterval = 1 };  // the unit of SetConfig.interval: cycles, ns
enum : uint32_t { kKeepLatest = 1 };       // of a full buffer
enum : uint32_t { kStopOther = 0, kStopImageFull = 1, kStopEndOfRecords = 2 };
enum : int { kCapabilityMajor = 75, kCapabilityMinor = 76 };  // CUdevice_attribute

struct ProfilerInitialize {
  size_t struct_size;
  void* priv;
};

struct ProfilerDeInitialize {
  size_t struct_size;
  void* priv;
};

struct ChipName {
  size_t struct_size;
  void* priv;
  size_t device;
  const char* name;  // out
};

struct HostInitialize {
  size_t struct_size;
  void* priv;
  uint32_t type;
  const char* chip;
  const uint8_t* availability;
  void* object;  // out
};

struct HostDeinitialize {
  size_t struct_size;
  void* priv;
  void* object;
};

struct ConfigAddMetrics {
  size_t struct_size;
  void* priv;
  void* object;
  const char** names;
  size_t count;
};

struct ConfigImageSize {
  size_t struct_size;
  void* priv;
  void* object;
  size_t bytes;  // out
};

struct ConfigImage {
  size_t struct_size;
  void* priv;
  void* object;
  size_t bytes;
  uint8_t* image;  // out
};

struct NumOfPasses {
  size_t struct_size;
  void* priv;
  size_t bytes;
  uint8_t* image;
  size_t passes;  // out
};

struct EvaluateToGpuValues {
  size_t struct_size;
  void* priv;
  void* object;
  const uint8_t* image;
  size_t bytes;
  size_t sample;
  const char** names;
  size_t count;
  double* values;  // out
};

struct CounterAvailability {
  size_t struct_size;
  void* priv;
  size_t device;
  size_t bytes;    // in and out
  uint8_t* image;  // out; nullptr asks for the size
};

struct Enable {
  size_t struct_size;
  void* priv;
  size_t device;
  void* object;  // out
};

struct Disable {
  size_t struct_size;
  void* priv;
  void* object;
};

struct Start {
  size_t struct_size;
  void* priv;
  void* object;
};

struct Stop {
  size_t struct_size;
  void* priv;
  void* object;
};

struct SetConfig {
  size_t struct_size;
  void* priv;
  void* object;
  size_t config_bytes;
  const uint8_t* config;  // CUPTI keeps the pointer until Disable
  size_t buffer_bytes;    // on the GPU
  uint64_t interval;
  uint32_t trigger;
  uint32_t append;        // not before CUDA 12.8
};

struct CounterDataSize {
  size_t struct_size;
  void* priv;
  void* object;
  const char** names;
  size_t count;
  uint32_t samples;
  size_t bytes;  // out
};

struct CounterDataInitialize {
  size_t struct_size;
  void* priv;
  void* object;
  size_t bytes;
  uint8_t* image;
};

struct DecodeData {
  size_t struct_size;
  void* priv;
  void* object;
  uint8_t* image;
  size_t bytes;
  uint32_t stop_reason;  // out
  uint8_t overflow;      // out
};

struct CounterDataInfo {
  size_t struct_size;
  void* priv;
  const uint8_t* image;
  size_t bytes;
  size_t total;      // out, as the two below
  size_t populated;
  size_t completed;
};

struct SampleInfo {
  size_t struct_size;
  void* priv;
  void* object;
  const uint8_t* image;
  size_t bytes;
  size_t sample;
  uint64_t start;  // out, ns
  uint64_t end;    // out
};

// CUPTI's own sizes end with the last field, without what pads it.
template <typename Params>
constexpr size_t kStructSize = sizeof(Params);
template <>
constexpr size_t kStructSize<DecodeData> = offsetof(DecodeData, overflow) + 1;

template <typename Params>
Params params() {
  Params made{};
  made.struct_size = kStructSize<Params>;
  return made;
}

// name, parameters: one list drives the loader.
#define PYMON_PM_FUNCTIONS(X)                                             \
  X(cuptiProfilerInitialize, (ProfilerInitialize*))                       \
  X(cuptiProfilerDeInitialize, (ProfilerDeInitialize*))                   \
  X(cuptiDeviceGetChipName, (ChipName*))                                  \
  X(cuptiProfilerHostInitialize, (HostInitialize*))                       \
  X(cuptiProfilerHostDeinitialize, (HostDeinitialize*))                   \
  X(cuptiProfilerHostConfigAddMetrics, (ConfigAddMetrics*))               \
  X(cuptiProfilerHostGetConfigImageSize, (ConfigImageSize*))              \
  X(cuptiProfilerHostGetConfigImage, (ConfigImage*))                      \
  X(cuptiProfilerHostGetNumOfPasses, (NumOfPasses*))                      \
  X(cuptiProfilerHostEvaluateToGpuValues, (EvaluateToGpuValues*))         \
  X(cuptiPmSamplingGetCounterAvailability, (CounterAvailability*))        \
  X(cuptiPmSamplingEnable, (Enable*))                                     \
  X(cuptiPmSamplingDisable, (Disable*))                                   \
  X(cuptiPmSamplingSetConfig, (SetConfig*))                               \
  X(cuptiPmSamplingGetCounterDataSize, (CounterDataSize*))                \
  X(cuptiPmSamplingCounterDataImageInitialize, (CounterDataInitialize*))  \
  X(cuptiPmSamplingStart, (Start*))                                       \
  X(cuptiPmSamplingStop, (Stop*))                                         \
  X(cuptiPmSamplingDecodeData, (DecodeData*))                             \
  X(cuptiPmSamplingGetCounterDataInfo, (CounterDataInfo*))                \
  X(cuptiPmSamplingCounterDataGetSampleInfo, (SampleInfo*))

// Of the driver, beside those of cuda_abi.h: only a burst, in a process of its own, may initialise it.
#define PYMON_PM_CUDA_FUNCTIONS(X)        \
  X(cuInit, (unsigned))                   \
  X(cuDeviceGet, (int*, int))             \
  X(cuDeviceGetName, (char*, int, int))   \
  X(cuDeviceGetAttribute, (int*, int, int))

struct Api {
#define X(name, parameters) cupti::Result(*name) parameters = nullptr;
  PYMON_PM_FUNCTIONS(X)
#undef X
};

struct CudaApi {
#define X(name, parameters) cuda::Result(*name) parameters = nullptr;
  PYMON_PM_CUDA_FUNCTIONS(X)
#undef X
};

}  // namespace pymon::pm
