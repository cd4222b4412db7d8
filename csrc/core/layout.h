// The page: what a training process publishes, as bytes in a sealed memfd.
//
// Append-only: a field keeps its offset for as long as the major number stands; new ones go into reserved words or new
// sections, and the minor number grows. The daemon reads this major and the one before. `pymon/link/layout.py` is the
// Python twin; tests/link compares the two byte for byte.
//
// All numbers are little-endian and 8 bytes wide (u64) unless said otherwise. Durations are nanoseconds, clocks are
// CLOCK_MONOTONIC (`mono`) or CLOCK_REALTIME (`real`).
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon {

constexpr uint32_t kMajor = 1;
constexpr uint32_t kMinor = 0;
constexpr char kMagic[8] = {'P', 'Y', 'M', 'O', 'N', 'P', 'G', '\0'};  // stored last, so a page without it is not ready

constexpr uint32_t kPhases = 16;      // slots: 0..4 part the step (below), 5..7 reserved, 8..15 are pymon.phase(name)
constexpr uint32_t kUserPhases = 8;
constexpr uint32_t kUserPhaseFirst = 8;
constexpr uint32_t kUserPhaseNameBytes = 32;  // UTF-8, NUL padded, cut at 31 bytes
constexpr uint32_t kHistogramBuckets = 32;
constexpr uint32_t kHistogramFirstShift = 10;  // bucket 0: below 2^10 ns; bucket i: below 2^(10+i) ns; 31: all others
constexpr uint32_t kRingEntries = 4096;        // design: the last 4,096 steps; a power of two

enum Phase : uint32_t { kDataWait = 0, kForward = 1, kBackward = 2, kOptimizer = 3, kOther = 4 };

// How steps are counted; `Counting` in pymon/model/training.py.
enum Counting : uint64_t { kCountNone = 0, kCountOptimizer = 1, kCountExplicit = 2, kCountBackward = 3 };

enum StepFlags : uint32_t { kStepProfiled = 1, kStepEstimated = 2 };

// Written once, before the magic.
struct Header {                 // offset
  char magic[8];                //   0
  uint32_t major, minor;        //   8, 12
  uint64_t page_bytes;          //  16  the memfd's size
  uint64_t pid;                 //  24  in the writer's pid namespace
  uint64_t start_ticks;         //  32  field 22 of /proc/self/stat: tells a reused pid
  uint64_t created_mono_ns;     //  40
  uint64_t created_real_ns;     //  48
  uint8_t attach_id[16];        //  56  random; the page's identity
  uint64_t train_offset, train_bytes;  // 72, 80  TrainSection; reserved for later sections: offset 0 means absent
  uint64_t gpu_offset, gpu_bytes;      // 88, 96  CUDA events (absent in minor 0)
  uint64_t cupti_offset, cupti_bytes;  // 104, 112  CUPTI sums (absent in minor 0)
  uint64_t ring_offset, ring_entry_bytes, ring_entries;  // 120, 128, 136
  uint64_t reserved[14];        // 144
};
static_assert(sizeof(Header) == 256, "header is 256 bytes");
static_assert(offsetof(Header, attach_id) == 56 && offsetof(Header, train_offset) == 72, "header layout");
static_assert(offsetof(Header, ring_offset) == 120 && offsetof(Header, reserved) == 144, "header layout");

// The training thread's section body. Words only, so that it is copied as relaxed atomic words under the seqlock.
struct TrainBody {                         // word index
  uint64_t counting;                       //  0  enum Counting
  uint64_t steps_total;                    //  1
  uint64_t backwards_total;                //  2  outermost backward passes
  uint64_t optimizer_calls_total;          //  3  step calls by the armed rule
  uint64_t batches_total;                  //  4  outermost fetches by the training thread
  uint64_t step_ns_total;                  //  5  sum of all finished steps
  uint64_t first_boundary_mono_ns;         //  6  0 before the first
  uint64_t last_boundary_mono_ns;          //  7  0 before the first
  uint64_t own_ns_total;                   //  8  time spent in the probe's hooks
  uint64_t capturing;                      //  9  1 while a capture runs here
  uint64_t loader_workers_plus_1;          // 10  0: no loader seen
  uint64_t prefetches_total;               // 11  fetches by other threads: never data wait
  uint64_t optimizers_seen;                // 12  distinct ones in the last iteration
  uint64_t training_tid;                   // 13
  uint64_t user_phases;                    // 14  names in use
  uint64_t dropped_total;                  // 15  what the probe had no room for (user phases, optimizers)
  uint64_t reserved[8];                    // 16
  uint64_t phase_ns_total[kPhases];        // 24
  uint64_t step_histogram[kHistogramBuckets];                    // 40
  uint64_t phase_histogram[5][kHistogramBuckets];                // 72  slots 0..4
  char user_phase_names[kUserPhases][kUserPhaseNameBytes];       // 232
};
constexpr uint64_t kTrainWords = 264;
static_assert(sizeof(TrainBody) == kTrainWords * 8, "train body");
static_assert(offsetof(TrainBody, phase_ns_total) == 24 * 8, "train body");
static_assert(offsetof(TrainBody, phase_histogram) == 72 * 8, "train body");
static_assert(offsetof(TrainBody, user_phase_names) == 232 * 8, "train body");

// A section: its seqlock word on a cache line of its own, then the body.
struct TrainSection {
  uint64_t seq;
  uint64_t pad[7];
  TrainBody body;
};
static_assert(offsetof(TrainSection, body) == 64, "section body starts on the next cache line");

// One finished step. `step` is set to 0 first and to the step's number last, so a reader that sees the same number
// before and after its copy has a whole record; the entry of step n is n % kRingEntries.
struct RingEntry {                         // word index
  uint64_t step;                           //  0  1 is the first
  uint64_t end_mono_ns;                    //  1
  uint64_t duration_ns;                    //  2
  uint64_t counts;                         //  3  backwards (bits 0-15), optimizer calls (16-31), batches (32-47)
  uint64_t flags;                          //  4  enum StepFlags
  uint64_t own_ns;                         //  5
  uint64_t reserved[2];                    //  6  samples, tokens
  uint64_t phase_ns[kPhases];              //  8
};
static_assert(sizeof(RingEntry) == 192, "ring entry");

constexpr uint64_t kTrainOffset = 256;
constexpr uint64_t kRingOffset = 4096;
static_assert(kTrainOffset + sizeof(TrainSection) <= kRingOffset, "sections end before the ring");
constexpr uint64_t kPageBytes = kRingOffset + sizeof(RingEntry) * kRingEntries;
static_assert(kPageBytes % 4096 == 0, "whole memory pages");

}  // namespace pymon
