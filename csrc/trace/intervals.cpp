#include "trace/intervals.h"

#include <algorithm>

namespace pymon::trace {

Intervals united(Intervals pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  Intervals out;
  for (const Interval& piece : pieces) {
    if (piece.end_ns <= piece.begin_ns) continue;
    if (!out.empty() && piece.begin_ns <= out.back().end_ns) {
      out.back().end_ns = std::max(out.back().end_ns, piece.end_ns);
    } else {
      out.push_back(piece);
    }
  }
  return out;
}

Intervals intersection(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].begin_ns, b[j].begin_ns);
    const int64_t end = std::min(a[i].end_ns, b[j].end_ns);
    if (begin < end) out.push_back({begin, end});
    if (a[i].end_ns < b[j].end_ns) ++i;
    else ++j;
  }
  return out;
}

Intervals difference(const Intervals& a, const Intervals& b) {
  Intervals out;
  size_t j = 0;
  for (const Interval& whole : a) {
    int64_t at = whole.begin_ns;
    while (j < b.size() && b[j].end_ns <= whole.begin_ns) ++j;
    for (size_t k = j; k < b.size() && b[k].begin_ns < whole.end_ns && at < whole.end_ns; ++k) {
      if (b[k].begin_ns > at) out.push_back({at, b[k].begin_ns});
      at = std::max(at, b[k].end_ns);
    }
    if (at < whole.end_ns) out.push_back({at, whole.end_ns});
  }
  return out;
}

int64_t total_ns(const Intervals& intervals) {
  int64_t total = 0;
  for (const Interval& piece : intervals) total += piece.end_ns - piece.begin_ns;
  return total;
}

int64_t within_ns(const Intervals& intervals, int64_t begin_ns, int64_t end_ns) {
  auto at = std::lower_bound(intervals.begin(), intervals.end(), begin_ns,
                             [](const Interval& piece, int64_t begin) { return piece.end_ns <= begin; });
  int64_t total = 0;
  for (; at != intervals.end() && at->begin_ns < end_ns; ++at) {
    total += std::min(at->end_ns, end_ns) - std::max(at->begin_ns, begin_ns);
  }
  return total;
}

}  // namespace pymon::trace
