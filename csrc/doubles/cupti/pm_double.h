// PM sampling of the libcupti double, with the host and target profiler that belong to it. Built for tests only, never
// installed.
//
// It behaves as CUPTI does where a burst can come to depend on it:
//   - a struct whose size is not that of CUDA 12.8 is an invalid parameter
//   - a host object that refused one metric refuses all later ones; each ConfigAddMetrics is a pass of its own
//   - Turing takes two passes for the tensor pipe; Ada has no NVLink, Blackwell's GB100 no PCIe metrics
//   - one burst at a time on a GPU, else CUPTI_ERROR_INVALID_OPERATION
//   - the config image is read until Disable; a second ProfilerDeInitialize is an abort
//   - the buffer on the GPU keeps the latest samples, kSampleBytes each; what it lost makes Decode answer error 8, or set
//     its overflow flag where DOUBLE_PM_OVERFLOW=flag
//   - the first sample begins before the burst does, the last one ends after it
// Its samples are a clock's: one each interval, from Start to Stop. Their values are kPmDoubleValues, and half of the
// ratios in every second sample.
// DOUBLE_PM_CHIP names the chip (GH100). DOUBLE_PM_GAP=N leaves N samples out after the tenth. DOUBLE_CUPTI_FAIL=
// "function=error", DOUBLE_CUPTI_HANG="function=1" (for good), DOUBLE_CUPTI_CRASH="function=signal".
#pragma once

#include <cstddef>
#include <cstdint>

#include "doubles/cuda/cuda_double.h"

struct PmDoubleValue {
  const char* metric;  // NVIDIA's name
  double value;
  bool is_ratio;
};
inline constexpr PmDoubleValue kPmDoubleValues[] = {
    {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 80, true},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 40, true},
    {"sm__warps_active.avg.pct_of_peak_sustained_elapsed", 20, true},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", 60, true},
    {"dram__bytes.sum", 1000, false},
    {"pcie__read_bytes.sum", 200, false},
    {"pcie__write_bytes.sum", 100, false},
    {"nvlrx__bytes.sum", 300, false},
    {"nvltx__bytes.sum", 400, false},
    {"sm__cycles_elapsed.avg.per_second", 1.5e9, false},
};
inline constexpr size_t kPmDoubleSampleBytes = 1024;  // in the buffer on the GPU

PYMON_DOUBLE int pm_double_alive();       // objects and initialisations that were not given back
PYMON_DOUBLE uint64_t pm_double_calls();  // of all its functions
