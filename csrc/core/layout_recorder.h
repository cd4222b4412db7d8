// The page's section of torch's Flight Recorder: single collectives, as far as it was read. Written under the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layout_collectives.h"

namespace pymon {

constexpr uint32_t kRecordedGroups = 16;
constexpr uint32_t kRecordedOps = 40;  // pairs of a group and an operation
constexpr uint32_t kOpNameBytes = 40;
constexpr uint32_t kBackendBytes = 16;
constexpr uint32_t kArrivals = 96;
constexpr uint32_t kRecorderReasonBytes = 160;

// Numbers are the group's own count of its collectives, from 1; sends and receives are in none of them.
struct RecordedGroup {                     // word index
  char name[kGroupNameBytes];              //  0  as GroupState's
  char backend[kBackendBytes];             //  4  gloo, nccl
  uint64_t enqueued;                       //  6  the last one begun
  uint64_t started;                        //  7  the last one known to run; 0: not known
  uint64_t completed;                      //  8  the last one with all before it ended
  uint64_t open_op_plus_1;                 //  9  of the one after it, where it was begun: its place in `op`; 0: none
  uint64_t open_bytes;                     // 10
  uint64_t open_real_ns;                   // 11  when it was begun
};

struct RecordedOp {                        // word index
  char name[kOpNameBytes];                 //  0
  uint64_t group;                          //  5  place in `group`
  uint64_t count_total;                    //  6
  uint64_t bytes_total;                    //  7  the larger of inputs and outputs, as nccl-tests count a message
  uint64_t timed_total;                    //  8  of these, with a duration
  uint64_t time_ns_total;                  //  9  theirs
};

struct Arrival {
  uint64_t group;                          // place in `group`
  uint64_t sequence;
  uint64_t real_ns;                        // when this rank began that collective
};

struct RecorderBody {                      // word index
  uint64_t reads_total;                    //  0
  uint64_t read_cpu_ns_total;              //  1
  uint64_t last_read_mono_ns;              //  2
  uint64_t records_total;                  //  3
  uint64_t missed_total;                   //  4  overwritten before they were read
  uint64_t dropped_total;                  //  5  records for which the tables had no room
  uint64_t unsized_total;                  //  6  records of a type whose size is not known
  uint64_t groups;                         //  7
  uint64_t ops;                            //  8
  uint64_t arrivals;                       //  9
  uint64_t reserved[6];                    // 10
  char reason[kRecorderReasonBytes];       // 16  what is not read and why; empty: nothing of that kind
  RecordedGroup group[kRecordedGroups];    // 36
  RecordedOp op[kRecordedOps];             // 228
  Arrival arrival[kArrivals];              // 628  of the newest read; sequences that are multiples of a power of two
};
constexpr uint64_t kRecorderWords = 916;
static_assert(sizeof(RecorderBody) == kRecorderWords * 8, "recorder body");
static_assert(offsetof(RecorderBody, group) == 36 * 8 && offsetof(RecorderBody, op) == 228 * 8, "recorder body");

struct RecorderSection {
  uint64_t seq;
  uint64_t pad[7];
  RecorderBody body;
};

}  // namespace pymon
