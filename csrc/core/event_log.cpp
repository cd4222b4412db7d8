#include "core/event_log.h"

#include <algorithm>
#include <cstring>

namespace pymon {

void EventLog::publish_to(PageWriter* page) noexcept {
  page_ = page;
  if (page_ == nullptr) return;
  for (const EventEntry& entry : early_) page_->push_event(entry);  // number 0 is none
  publish();
}

void EventLog::note(EventKind kind, uint64_t begin_ns, uint64_t duration_ns, uint64_t step, uint64_t detail,
                    uint64_t times) noexcept {
  EventSums& sums = body_.sums[kind];
  sums.count += times;
  sums.ns_total += duration_ns;
  sums.ns_max = std::max(sums.ns_max, duration_ns);
  sums.last_begin_mono_ns = begin_ns;
  sums.last_ns = duration_ns;
  sums.last_step = step;
  if (kind != kGcYoung) {
    EventEntry entry{};
    entry.number = ++body_.events_total;
    entry.kind = kind;
    entry.begin_mono_ns = begin_ns;
    entry.duration_ns = duration_ns;
    entry.step = step;
    entry.detail = detail;
    if (page_ != nullptr) {
      page_->push_event(entry);
    } else {
      early_[entry.number % kEventRingEntries] = entry;
    }
  }
  publish();
}

void EventLog::watch(EventKind kind) noexcept {
  body_.watched |= uint64_t{1} << kind;
  publish();
}

void EventLog::set_unseen(const char* why) noexcept {
  std::memset(body_.unseen, 0, sizeof body_.unseen);
  std::strncpy(body_.unseen, why, sizeof body_.unseen - 1);
  publish();
}

void EventLog::set_cudnn_benchmark(bool on) noexcept {
  const uint64_t before = body_.cudnn_benchmark_plus_1, now = on ? 2 : 1;
  if (before == now) return;
  body_.cudnn_benchmark_plus_1 = now;
  body_.cudnn_benchmark_changes_total += before != 0;
  publish();
}

void EventLog::reset() noexcept {
  page_ = nullptr;
  EventsBody fresh{};
  fresh.watched = body_.watched;
  std::memcpy(fresh.unseen, body_.unseen, sizeof fresh.unseen);
  body_ = fresh;
  std::memset(early_, 0, sizeof early_);
}

void EventLog::publish() noexcept {
  if (page_ != nullptr) page_->publish_events(body_);
}

}  // namespace pymon
