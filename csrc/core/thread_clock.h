// What the step clock keeps for each thread that trains.
#pragma once

#include <cstdint>

#include "core/layout.h"

namespace pymon {

constexpr uint32_t kNoPhase = ~0u;

// What has been gathered for the step that is not finished yet.
struct OpenStep {
  uint64_t phase_ns[kPhases] = {};
  uint64_t backwards = 0, optimizer_calls = 0, batches = 0, own_ns = 0;

  void subtract(const OpenStep& part) noexcept {
    for (uint32_t slot = 0; slot < kPhases; ++slot) phase_ns[slot] -= part.phase_ns[slot];
    backwards -= part.backwards;
    optimizer_calls -= part.optimizer_calls;
    batches -= part.batches;
    own_ns -= part.own_ns;
  }
};

struct ThreadClock {
  uint32_t ended_phase = kNoPhase;  // what the last call ended; the caller takes it, to mark the GPU's time
  uint32_t epoch = 0;               // of StepClock, when this thread last counted
  uint64_t now_ns = 0;              // the clock as it was last read here
  bool trains = false;  // ran a backward pass or an optimizer
  bool armed = false;
  bool stepped_in_backward = false;
  uint32_t data_depth = 0;
  uint32_t backward_depth = 0;
  ThreadClock* waited_before = nullptr;  // the next older one of those inside a backward pass

  uint64_t seen_slots = 0;  // optimizers of this iteration, a bit each
  uint64_t known_slots = 0;  // those of the iteration before; 0: none ended by an optimizer that stepped again
  uint64_t newcomer_slot = 0;  // the first one of this iteration that was not among them; 0: none
  uint64_t seen_before_newcomer = 0;
  uint64_t newcomer_ns = 0;
  OpenStep newcomer_step;  // what was open when its first call ended

  // Since the last optimizer call there was a backward pass or a batch: what another call may make a step of.
  bool fresh = false;
  uint32_t stale_calls = 0;  // in a row that lacked both

  uint64_t step_begin_ns = 0;  // 0: nothing happened yet
  uint64_t data_begin_ns = 0;
  uint64_t forward_begin_ns = 0;  // 0: not in forward
  uint64_t backward_begin_ns = 0;
  uint64_t last_backward_end_ns = 0;  // 0: none in this step
  uint64_t optimizer_begin_ns = 0;
  uint64_t optimizer_in_backward_ns = 0;

  OpenStep open;
};

}  // namespace pymon
