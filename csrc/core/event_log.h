// Counts, times and remembers the events that explain a slow step. Pure; all calls hold the GIL.
#pragma once

#include <cstdint>

#include "core/layout.h"
#include "core/page_writer.h"

namespace pymon {

class EventLog {
 public:
  // From now on the page shows all this, what was so far included.
  void publish_to(PageWriter* page) noexcept;

  // One event. `step` is the step that was open. `times` > 1 for a kind whose single events have no time.
  void note(EventKind kind, uint64_t begin_ns, uint64_t duration_ns, uint64_t step, uint64_t detail,
            uint64_t times = 1) noexcept;

  void watch(EventKind kind) noexcept;
  void set_unseen(const char* why) noexcept;
  void set_cudnn_benchmark(bool on) noexcept;
  void reset() noexcept;  // a fork's child starts from nothing, but sees what its parent saw

 private:
  void publish() noexcept;

  EventsBody body_{};
  EventEntry early_[kEventRingEntries]{};  // the ring while there is no page: the first compilations come before it
  PageWriter* page_ = nullptr;
};

}  // namespace pymon
