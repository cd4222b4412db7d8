// What a burst of hardware counters asks for: the one list. Planned together they take one pass from Ampere on
// (tests/native/test_pm_plan.py holds that against NVIDIA's own planner, chip by chip).
#pragma once

#include <cstddef>

namespace pymon {

struct PmMetric {
  const char* name;   // ours, ends in its unit
  const char* cupti;  // NVIDIA's
  double scale;       // from theirs to ours
};

inline constexpr PmMetric kPmMetrics[] = {
    {"sm_active_ratio", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 0.01},
    {"tensor_active_ratio", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 0.01},
    {"sm_occupancy_ratio", "sm__warps_active.avg.pct_of_peak_sustained_elapsed", 0.01},
    {"dram_active_ratio", "dram__throughput.avg.pct_of_peak_sustained_elapsed", 0.01},
    {"dram_bytes", "dram__bytes.sum", 1},
    {"pcie_read_bytes", "pcie__read_bytes.sum", 1},
    {"pcie_write_bytes", "pcie__write_bytes.sum", 1},
    {"nvlink_received_bytes", "nvlrx__bytes.sum", 1},
    {"nvlink_sent_bytes", "nvltx__bytes.sum", 1},
    {"sm_clock_hz", "sm__cycles_elapsed.avg.per_second", 1},  // shows the lock of the clocks
};
inline constexpr size_t kPmMetricCount = sizeof(kPmMetrics) / sizeof(kPmMetrics[0]);

}  // namespace pymon
