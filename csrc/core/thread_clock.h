// What the step clock keeps for each thread that trains.
#pragma once

#include <cstdint>

#include "core/layout.h"

namespace pymon {

constexpr uint32_t kNoPhase = ~0u;

// As RunBody has them; 0 where not known.
struct LoaderSettings {
  uint64_t workers_plus_1 = 0, prefetch_factor_plus_1 = 0, flags_plus_1 = 0;
  uint64_t sharing_strategy = 0, start_method = 0, batch_size = 0;
};

// A DataLoader, as long as it lives.
struct Loader {
  LoaderSettings settings;
  bool trains = false;  // a backward pass followed a batch of it
};

// What is known of one fetch; all of it may be absent.
struct Fetch {
  Loader* loader = nullptr;
  const void* iterator = nullptr;  // compared only
  bool grad = true;                // gradients are recorded in this thread
  bool starts = false;             // no batch: an iteration begins, its workers start
  uint64_t samples = 0, tokens = 0;  // of the batch that it gave; 0: not known
};

// What has been gathered for the step that is not finished yet.
struct OpenStep {
  uint64_t phase_ns[kPhases] = {};
  uint64_t backwards = 0, optimizer_calls = 0, batches = 0, own_ns = 0, samples = 0, tokens = 0;

  void subtract(const OpenStep& part) noexcept {
    for (uint32_t slot = 0; slot < kPhases; ++slot) phase_ns[slot] -= part.phase_ns[slot];
    backwards -= part.backwards;
    optimizer_calls -= part.optimizer_calls;
    batches -= part.batches;
    own_ns -= part.own_ns;
    samples -= part.samples;
    tokens -= part.tokens;
  }
};

// Batches that are fetched for no backward pass; what of the step was open before them is open again after them.
struct Evaluation {
  bool open = false;
  bool sure = false;   // fetched where gradients are off; else from a loader that never trained, which a backward
                       // pass may still disprove
  bool marked = false;  // by the user: nothing else begins or ends it
  uint32_t marks = 0;   // of them, how many are open
  uint32_t batches = 0;
  Loader* loader = nullptr;        // of the first batch
  const void* iterator = nullptr;  // of the last batch
  uint64_t begin_ns = 0, last_fetch_ns = 0;
  uint64_t wait_ns = 0, first_ns = 0;  // for the first batch; from the start of its loader, 0: that was not seen
  OpenStep before;
};

constexpr uint32_t kNewLoaders = 4;  // fetched from at a time, before the first backward pass

struct ThreadClock {
  bool left_out = false;  // time that is no step's went by since the last mark; the caller takes it likewise
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

  Evaluation evaluation;
  Loader* new_loaders[kNewLoaders] = {};  // fetched from since the last backward pass, not known to train
  uint64_t began_ns = 0;  // an iteration over a loader, of which the first batch is to come

  uint32_t save_depth = 0;
  uint64_t save_begin_ns = 0;
};

}  // namespace pymon
