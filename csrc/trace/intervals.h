// Sets of time, as sorted intervals that do not touch.
#pragma once

#include <cstdint>
#include <vector>

namespace pymon::trace {

struct Interval {
  int64_t begin_ns;
  int64_t end_ns;
};

using Intervals = std::vector<Interval>;

// Sorted, merged, empty ones dropped.
Intervals united(Intervals pieces);
Intervals intersection(const Intervals& a, const Intervals& b);
Intervals difference(const Intervals& a, const Intervals& b);
int64_t total_ns(const Intervals& intervals);
// How much of `intervals` lies within [begin, end).
int64_t within_ns(const Intervals& intervals, int64_t begin_ns, int64_t end_ns);

// A sum that stops at the largest number: a hostile file must not make it wrap.
inline void add(int64_t* sum, int64_t value) {
  if (__builtin_add_overflow(*sum, value, sum)) *sum = INT64_MAX;
}

}  // namespace pymon::trace
