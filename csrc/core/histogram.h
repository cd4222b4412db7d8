// Log2 buckets of durations: one subtraction and one increment per value.
#pragma once

#include <cstdint>

#include "core/layout.h"

namespace pymon {

// Bucket 0 counts what is below 2^10 ns, bucket i what is below 2^(10+i) ns, the last one all others.
inline uint32_t histogram_bucket(uint64_t duration_ns) noexcept {
  const uint64_t above = duration_ns >> kHistogramFirstShift;
  if (above == 0) return 0;
  const uint32_t bucket = 64 - static_cast<uint32_t>(__builtin_clzll(above));
  return bucket < kHistogramBuckets ? bucket : kHistogramBuckets - 1;
}

inline void histogram_add(uint64_t (&buckets)[kHistogramBuckets], uint64_t duration_ns) noexcept {
  ++buckets[histogram_bucket(duration_ns)];
}

}  // namespace pymon
