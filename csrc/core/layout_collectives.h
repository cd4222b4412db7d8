// The page's section of collectives (since minor 4), written under the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon {

constexpr uint32_t kCollectiveGroups = 16;
constexpr uint32_t kGroupNameBytes = 32;

struct GroupState {                        // word index
  char name[kGroupNameBytes];              //  0  UTF-8, NUL padded; core/group_name.h
  uint64_t size;                           //  4
  uint64_t rank;                           //  5  of this process in the group
  uint64_t sequence;                       //  6  collectives begun, DDP's own included
  uint64_t changed_mono_ns;                //  7  when it was first seen at this number
};

struct CollectivesBody {                   // word index
  uint64_t groups;                         //  0  of this process that tell; those beyond the table are not in it
  uint64_t ddp_samples_total;              //  1  iterations that DDP timed and that were read
  uint64_t ddp_comm_ns_total;              //  2  from the first bucket's begin to the last one's end: wait and transfer
  uint64_t ddp_overlap_ns_total;           //  3  of it, beside the backward pass
  uint64_t ddp_last_iteration;             //  4
  uint64_t ddp_last_begin_real_ns;         //  5  when its first bucket began: this rank's arrival
  uint64_t ddp_last_comm_ns;               //  6
  uint64_t ddp_bytes;                      //  7  of the gradients of one iteration
  GroupState group[kCollectiveGroups];     //  8
};
constexpr uint64_t kCollectivesWords = 136;
static_assert(sizeof(CollectivesBody) == kCollectivesWords * 8, "collectives body");

struct CollectivesSection {
  uint64_t seq;
  uint64_t pad[7];
  CollectivesBody body;
};

}  // namespace pymon
