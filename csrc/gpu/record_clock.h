// What the times in CUPTI's records mean.
//
// They are CLOCK_REALTIME nanoseconds until somebody registers a timestamp callback. Kineto registers one that reads the
// processor's tick counter, at each of its captures, and leaves it there: from then on record times are ticks. We must
// not register one of our own, since each registration costs the user's next captures one more of their first kernels
// (pytorch #192021). So the clock is watched: cuptiGetTimestamp between two looks at CLOCK_REALTIME says which of the
// two it is, and for ticks the slope is measured, the longer the better.
#pragma once

#include <cstdint>

namespace pymon {

class RecordClock {
 public:
  // One look: `cupti` is cuptiGetTimestamp's answer, `before` and `after` CLOCK_REALTIME around the call.
  struct Look {
    uint64_t before_ns, cupti, after_ns;
  };

  // At arming: from here on the slope is measured.
  void begin(const Look& look) noexcept;

  // Later looks. False: the clock turned from nanoseconds into ticks, so somebody took CUPTI without a word.
  bool renew(const Look& look) noexcept;

  struct Span {
    uint64_t begin_ns, end_ns;  // CLOCK_REALTIME
    bool plausible;
  };

  // A record's times. Not plausible: before its start, longer than a day, or far from any time of this session.
  Span span(uint64_t start, uint64_t end) const noexcept {
    if (__builtin_expect(end < start || end - start > kDayNs, 0)) return {0, 0, false};
    if (__builtin_expect(!ticks_, 1)) return {start, end, start - lowest_ <= width_};
    return span_of_ticks(start, end);
  }

  bool ticks() const noexcept { return ticks_; }

 private:
  static constexpr uint64_t kDayNs = 86'400'000'000'000u;
  Span span_of_ticks(uint64_t start, uint64_t end) const noexcept;
  static bool is_foreign(const Look& look) noexcept;

  bool ticks_ = false;
  uint64_t tick_origin_ = 0, ns_origin_ = 0;
  double ns_per_tick_ = 1.0;
  uint64_t lowest_ = 0, width_ = ~uint64_t{0};  // the plausible window, in the record's own clock
};

}  // namespace pymon
