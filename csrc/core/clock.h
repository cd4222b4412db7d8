// The two clocks of the page. `mono_ns` is CLOCK_MONOTONIC, as Python's time.monotonic_ns is on Linux, so the daemon
// may compare its own time with what a trainer of the same boot wrote.
#pragma once

#include <ctime>

#include <cstdint>

namespace pymon {

inline uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now;
  clock_gettime(clock, &now);  // cannot fail for the two clocks below
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t mono_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }
inline uint64_t real_ns() noexcept { return clock_ns(CLOCK_REALTIME); }

}  // namespace pymon
