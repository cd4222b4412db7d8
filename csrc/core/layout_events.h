// The page's section of events that explain a slow step (since minor 2), written under the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon {

// Append only. Young collections are in the sums alone: they are many and short, and would fill the ring.
enum EventKind : uint32_t {
  kGcYoung, kGcFull, kCompile, kRecompile, kGraphBreak, kCheckpointSave, kCheckpointBackground, kGraphCapture,
  kCacheFlush,
  kEventKindsUsed,
};
constexpr uint32_t kEventKinds = 16;
constexpr const char* kEventKindNames[kEventKindsUsed] = {
    "gc_young", "gc_full", "compile", "recompile", "graph_break", "checkpoint_save", "checkpoint_background",
    "graph_capture", "cache_flush",
};

struct EventSums {                         // word index
  uint64_t count;                          //  0
  uint64_t ns_total;                       //  1
  uint64_t ns_max;                         //  2
  uint64_t last_begin_mono_ns;             //  3  0: none, or its time is not known
  uint64_t last_ns;                        //  4
  uint64_t last_step;                      //  5  the step that was open, 1 for the first
  uint64_t reserved[2];                    //  6
};

struct EventsBody {                        // word index
  uint64_t watched;                        //  0  a bit for each EventKind that can be seen in this process
  uint64_t events_total;                   //  1  the number of the ring's newest entry
  uint64_t cudnn_benchmark_plus_1;         //  2  0: not known
  uint64_t cudnn_benchmark_changes_total;  //  3
  uint64_t reserved[4];                    //  4
  EventSums sums[kEventKinds];             //  8
  char unseen[160];                        // 136  UTF-8, NUL padded: why the kinds that are not watched are not
  uint64_t reserved1[4];                   // 156
};
constexpr uint64_t kEventsWords = 160;
static_assert(sizeof(EventsBody) == kEventsWords * 8, "events body");
static_assert(offsetof(EventsBody, sums) == 8 * 8 && offsetof(EventsBody, unseen) == 136 * 8, "events body");

// The same rules as RingEntry, by the event's number; 1 is the first.
struct EventEntry {                        // word index
  uint64_t number;                         //  0
  uint64_t kind;                           //  1  enum EventKind
  uint64_t begin_mono_ns;                  //  2
  uint64_t duration_ns;                    //  3
  uint64_t step;                           //  4  as EventSums.last_step
  uint64_t detail;                         //  5  objects collected; graph breaks since the last look
  uint64_t reserved[2];                    //  6
};
constexpr uint32_t kEventRingEntries = 256;
static_assert(sizeof(EventEntry) == 64, "event entry");

struct EventsSection {
  uint64_t seq;
  uint64_t pad[7];
  EventsBody body;
  uint64_t reserved[344];
  EventEntry ring[kEventRingEntries];  // at byte 4096
};
static_assert(offsetof(EventsSection, ring) == 4096, "events ring");

}  // namespace pymon
