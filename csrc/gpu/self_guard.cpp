#include "gpu/self_guard.h"

namespace pymon {

void SelfGuard::begin(const GuardReading& now) noexcept {
  *this = SelfGuard{budget_};
  window_ = now;
}

const char* SelfGuard::check(const GuardReading& now) noexcept {
  // Memory does not come back: at once.
  if (now.device_bytes > budget_.device_bytes) return "over its budget: more than 64 MiB of GPU memory taken since it started";
  if (now.host_bytes > budget_.host_bytes) return "over its budget: more than 32 MiB of host memory for CUPTI's buffers";
  if (now.mono_ns < window_.mono_ns + budget_.window_ns) return nullptr;

  const auto window_ns = static_cast<double>(now.mono_ns - window_.mono_ns);
  const auto cpu_ns = static_cast<double>(now.cpu_ns - window_.cpu_ns);
  const uint64_t records = now.records_total - window_.records_total;
  const uint64_t useless = now.zero_times_total - window_.zero_times_total + now.bad_times_total - window_.bad_times_total;
  const bool refused = now.buffers_refused_total > window_.buffers_refused_total;
  over_cpu_ = cpu_ns > budget_.cpu_share * window_ns ? over_cpu_ + 1 : 0;
  over_refused_ = refused ? over_refused_ + 1 : 0;
  useless_ = records >= kLeastRecords && static_cast<double>(useless) > kUselessShare * static_cast<double>(records)
                 ? useless_ + 1
                 : 0;
  window_ = now;
  if (over_cpu_ >= kWindows) return "over its budget: more than 0.5 % of a core for half a minute";
  if (over_refused_ >= kWindows) return "CUPTI keeps more buffers than it may have, so records are lost";
  if (useless_ >= kWindows) return "more than a tenth of CUPTI's records carry no usable times";
  return nullptr;
}

}  // namespace pymon
