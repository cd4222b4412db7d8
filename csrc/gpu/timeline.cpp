#include "gpu/timeline.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/histogram.h"

namespace pymon {

bool Timeline::allocate() noexcept {
  for (Lane& lane : lanes_) {
    lane.intervals.reset(new (std::nothrow) Interval[kLaneIntervals]);
    if (lane.intervals == nullptr) return false;
  }
  return true;
}

Timeline::Lane& Timeline::find_lane(uint32_t stream) noexcept {
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (lanes_[i].stream != stream && lanes_[i].stream != kNoStream) continue;
    lanes_[i].stream = stream;
    last_lane_ = i;
    return lanes_[i];
  }
  return lanes_[stream % kLanes];
}

// Half of a full lane is old enough: CUPTI has delivered thousands of records since.
void Timeline::make_room(Lane& lane) noexcept { settle(lane.intervals[kLaneIntervals / 2].begin_ns + 1); }

void Timeline::insert(Lane& lane, Interval* end, const Interval& added) noexcept {
  Interval* at = end;
  for (; at != lane.intervals.get() && at[-1].begin_ns > added.begin_ns; --at) *at = at[-1];
  *at = added;
}

void Timeline::settle(uint64_t until_ns) noexcept {
  uint32_t next[kLanes] = {};
  for (;;) {
    uint32_t first = kLanes;
    uint64_t begin_ns = until_ns;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (next[i] == lanes_[i].size || lanes_[i].intervals[next[i]].begin_ns >= begin_ns) continue;
      first = i;
      begin_ns = lanes_[i].intervals[next[i]].begin_ns;
    }
    if (first == kLanes) break;
    // As long as this lane's next one begins before all other lanes' it needs no new search.
    uint64_t others_ns = until_ns;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (i != first && next[i] != lanes_[i].size) {
        others_ns = std::min(others_ns, lanes_[i].intervals[next[i]].begin_ns);
      }
    }
    const Lane& lane = lanes_[first];
    do {
      sum_up(lane.intervals[next[first]]);
    } while (++next[first] != lane.size && lane.intervals[next[first]].begin_ns < others_ns);
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    Lane& lane = lanes_[i];
    lane.size -= next[i];
    std::memmove(lane.intervals.get(), lane.intervals.get() + next[i], lane.size * sizeof(Interval));
  }
  settled_ns_ = std::max(settled_ns_, until_ns);
}

void Timeline::interrupt() noexcept {
  settle(~uint64_t{0});
  settled_ns_ = 0;
  watched_before_ = false;
  for (Union* one : {&busy_, &kernels_, &compute_, &nccl_}) *one = Union{};
}

void Timeline::sum_up(const Interval& interval) noexcept {
  const uint64_t begin_ns = interval.begin_ns, end_ns = interval.end_and_kind >> 2;
  if (begin_ns > busy_.end_ns && watched_before_) {
    const uint64_t gap_ns = begin_ns - busy_.end_ns;
    sums_->gap_ns_total += gap_ns;
    ++sums_->gaps_total;
    ++sums_->gap_histogram[std::min(histogram_bucket(gap_ns), kWorkBuckets - 1)];
  }
  sums_->late_total += begin_ns < settled_ns_;
  watched_before_ = true;
  sums_->busy_ns_total += busy_.add(begin_ns, end_ns);
  const auto kind = static_cast<Kind>(interval.end_and_kind & 3);
  if (kind == kCopy) return;
  sums_->kernel_busy_ns_total += kernels_.add(begin_ns, end_ns);
  if (kind == kNcclKernel) {
    sums_->nccl_busy_ns_total += nccl_.add(begin_ns, end_ns);
  } else {
    sums_->compute_busy_ns_total += compute_.add(begin_ns, end_ns);
  }
  sums_->nccl_exposed_ns_total = sums_->kernel_busy_ns_total - sums_->compute_busy_ns_total;
}

}  // namespace pymon
