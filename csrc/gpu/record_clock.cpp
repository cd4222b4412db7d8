#include "gpu/record_clock.h"

namespace pymon {
namespace {

// A look takes microseconds, and one that was interrupted can be no reason to call the clock foreign.
constexpr uint64_t kToleranceNs = 1'000'000;
constexpr uint64_t kLeastBaseNs = 1'000'000;  // shorter, and a look's own duration is more than 1 % of the slope
constexpr double kHourNs = 3600e9;

}  // namespace

bool RecordClock::is_foreign(const Look& look) noexcept {
  return look.cupti + kToleranceNs < look.before_ns || look.cupti > look.after_ns + kToleranceNs;
}

void RecordClock::begin(const Look& look) noexcept {
  ticks_ = is_foreign(look);
  tick_origin_ = look.cupti;
  ns_origin_ = look.before_ns + (look.after_ns - look.before_ns) / 2;
  ns_per_tick_ = 1.0;
  lowest_ = ns_origin_ - kDayNs;
  width_ = 2 * kDayNs;
}

bool RecordClock::renew(const Look& look) noexcept {
  const uint64_t now_ns = look.before_ns + (look.after_ns - look.before_ns) / 2;
  if (!ticks_) {
    if (is_foreign(look)) return false;
    lowest_ = now_ns - kDayNs;
    return true;
  }
  if (now_ns < ns_origin_ + kLeastBaseNs || look.cupti <= tick_origin_) return true;
  ns_per_tick_ = static_cast<double>(now_ns - ns_origin_) / static_cast<double>(look.cupti - tick_origin_);
  const auto hour = static_cast<uint64_t>(kHourNs / ns_per_tick_);
  lowest_ = tick_origin_ > hour ? tick_origin_ - hour : 0;
  width_ = look.cupti - lowest_ + hour;
  return true;
}

RecordClock::Span RecordClock::span_of_ticks(uint64_t start, uint64_t end) const noexcept {
  const auto ns_of = [this](uint64_t tick) {
    return ns_origin_ + static_cast<uint64_t>(static_cast<int64_t>(
                            static_cast<double>(static_cast<int64_t>(tick - tick_origin_)) * ns_per_tick_));
  };
  if (start - lowest_ <= width_) return {ns_of(start), ns_of(end), true};
  // The first records of a session still come in nanoseconds, one more for each registration (pytorch #192021).
  if (start - (ns_origin_ - kDayNs) <= 2 * kDayNs) return {start, end, true};
  return {0, 0, false};
}

}  // namespace pymon
