// Switches the CUPTI layer off when it costs too much. Always-on CUPTI has run away in the field: its own processor time
// without bound (fixed in 13.4 Update 1), a gigabyte of GPU memory after 25 million records of CUDA graphs with driver
// 580 (parcagpu #23). Whoever watches must notice that on itself first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon {

struct GuardReading {
  uint64_t mono_ns = 0;
  uint64_t cpu_ns = 0;            // of our thread
  uint64_t records_total = 0;
  uint64_t zero_times_total = 0;
  uint64_t bad_times_total = 0;
  uint64_t buffers_refused_total = 0;
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;      // 0 where it is not known
};

// The layer's budget (design: 0.5 % of a core, 64 MiB of GPU memory, 32 MiB of host memory), judged once a window. A
// window must be long enough that one burst of compilation or start-up is not taken for the rule.
struct GuardBudget {
  double cpu_share = 0.005;
  uint64_t device_bytes = uint64_t{64} << 20;
  uint64_t host_bytes = uint64_t{32} << 20;
  uint64_t window_ns = 10'000'000'000;
};

class SelfGuard {
 public:
  // Three windows in a row, so that one busy half minute is not taken for the rule either.
  static constexpr int kWindows = 3;
  // Of a window's records this many without usable times: the sums would mislead. CUPTI documents times of 0 as lack of
  // device memory, which no later record gets over.
  static constexpr double kUselessShare = 0.1;
  static constexpr uint64_t kLeastRecords = 1000;

  explicit SelfGuard(const GuardBudget& budget = {}) noexcept : budget_(budget) {}

  void begin(const GuardReading& now) noexcept;

  // nullptr, or why the layer must stop, in words that live as long as the program.
  const char* check(const GuardReading& now) noexcept;

 private:
  GuardBudget budget_;
  GuardReading window_;
  int over_cpu_ = 0, over_refused_ = 0, useless_ = 0;
};

}  // namespace pymon
