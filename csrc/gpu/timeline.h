// One device's busy time: the union of its intervals over streams.
//
// A union needs intervals in order of their begins. Within a stream they come in order, across streams they do not, so
// each stream has a lane, and the lanes are merged up to a moment that no stream should still deliver anything before.
// What comes later than that is counted, and its busy time may be counted short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/layout.h"

namespace pymon {

class Timeline {
 public:
  enum Kind : uint64_t { kComputeKernel = 0, kNcclKernel = 1, kCopy = 2 };

  // Where the sums go: fields of the CUPTI head, added to.
  explicit Timeline(CuptiHead* sums) noexcept : sums_(sums) {}

  // False: no memory.
  bool allocate() noexcept;

  void add(uint32_t stream, uint64_t begin_ns, uint64_t end_ns, Kind kind) noexcept {
    Lane& lane = lane_of(stream);
    if (__builtin_expect(lane.size == kLaneIntervals, 0)) make_room(lane);
    Interval* at = lane.intervals.get() + lane.size++;
    const Interval added{begin_ns, end_ns << 2 | kind};
    if (__builtin_expect(lane.size == 1 || at[-1].begin_ns <= begin_ns, 1)) {
      *at = added;
    } else {
      insert(lane, at, added);
    }
  }

  // Sums up all that begins before `until_ns`.
  void settle(uint64_t until_ns) noexcept;

  // The next interval starts a new stretch: what lies before it was not watched, so it is no gap.
  void interrupt() noexcept;

  static constexpr size_t bytes() noexcept { return kLanes * kLaneIntervals * sizeof(Interval); }

 private:
  // Trainers use a handful of streams: compute, one or two of NCCL, copies. More than four share lanes.
  static constexpr uint32_t kLanes = 4;
  static constexpr uint32_t kLaneIntervals = 16384;  // a third of a second at 50,000 records a second
  static constexpr uint32_t kNoStream = ~0u;

  struct Interval {
    uint64_t begin_ns;
    uint64_t end_and_kind;  // end_ns << 2 | Kind: nanoseconds of CLOCK_REALTIME take 61 bits
  };
  struct Lane {
    uint32_t stream = kNoStream;
    uint32_t size = 0;
    std::unique_ptr<Interval[]> intervals;
  };
  struct Union {
    uint64_t end_ns = 0;
    // How much [begin, end) adds to the union of all before it.
    uint64_t add(uint64_t begin_ns, uint64_t end_ns_added) noexcept {
      if (end_ns_added <= end_ns) return 0;
      const uint64_t from_ns = begin_ns > end_ns ? begin_ns : end_ns;
      end_ns = end_ns_added;
      return end_ns_added - from_ns;
    }
  };

  Lane& lane_of(uint32_t stream) noexcept {
    Lane& lane = lanes_[last_lane_];
    return __builtin_expect(lane.stream == stream, 1) ? lane : find_lane(stream);
  }
  Lane& find_lane(uint32_t stream) noexcept;
  void make_room(Lane& lane) noexcept;
  void insert(Lane& lane, Interval* end, const Interval& added) noexcept;
  void sum_up(const Interval& interval) noexcept;

  CuptiHead* sums_;
  Lane lanes_[kLanes];
  uint32_t last_lane_ = 0;
  uint64_t settled_ns_ = 0;
  bool watched_before_ = false;
  Union busy_, kernels_, compute_, nccl_;
};

}  // namespace pymon
