// When this process began.
#pragma once

#include <cstdint>

namespace pymon {

// Field 22 of /proc/self/stat, the start in clock ticks since boot; 0 where it cannot be read. Together with the pid it
// names a process.
uint64_t start_ticks() noexcept;

// The same on CLOCK_MONOTONIC, in nanoseconds, to a clock tick (10 ms as a rule); 0 where it cannot be told.
uint64_t process_start_mono_ns() noexcept;

}  // namespace pymon
