// Turns what the hooks see (fetches, backward passes, optimizer calls) into steps and phases on the page.
//
// Pure: no Python, no clock of its own. The caller serialises all calls (the probe's hooks run under the GIL) and gives
// the time. State that belongs to a training thread lies in a ThreadClock, one for each thread.
//
// What is counted (docs/probe.md):
//   armed rule   an optimizer call counts once from `pre` to the first `post`, so wrappers and super().step() count once
//   repeat rule  an iteration ends when an optimizer steps that already stepped in it, so a GAN's pair counts once
//   in turn      an optimizer that steps twice while those of the iteration before do not began a training, or a part of
//                one, of its own: its first call was a step, too
//   stale calls  without a backward pass or a batch since the last one, a call belongs to that one's step: ZeRO calls the
//                same optimizer once for each group of parameters. Before the first of them it makes room for its state.
//   in backward  optimizers that step inside a backward pass end the iteration with that pass
//   explicit     once the user says where steps end, nothing else does
//   evaluation   batches that no backward pass follows, and checkpoint saves, lie between steps (step_pauses.cpp)
//   estimate     where backward passes go by and no optimizer ever steps, each is counted, and marked
#pragma once

#include <cstdint>

#include "core/layout.h"
#include "core/page_writer.h"
#include "core/thread_clock.h"

namespace pymon {

// Optimizers that are told apart at a time: a bit each of a word.
constexpr uint32_t kOptimizerSlots = 64;
constexpr uint32_t kNoSlot = kOptimizerSlots;

// Backward passes without any optimizer call before they are taken for steps. Gradient accumulation over more
// micro-batches than this is rarer than a training loop with an optimizer that cannot be hooked.
constexpr uint64_t kBackwardsBeforeEstimate = 64;

// Calls in a row without a backward pass or a batch before backward passes are taken for hidden (a replayed CUDA graph)
// and each further call for a step. ZeRO-3 makes a call for each billion parameters by default, ZeRO-1 for each group of the
// optimizer: a few, or two for each layer where the learning rate depends on the layer.
constexpr uint32_t kStaleCalls = 256;

// How a call that saves a checkpoint ended; `kSaveGoesOn`: it is made elsewhere, and told of there.
enum SaveOutcome : uint32_t { kSaveFailed = 0, kSaveSucceeded = 1, kSaveGoesOn = 2 };

class StepClock {
 public:
  StepClock() noexcept : body_(&unpublished_) {}

  // From now on the page shows all this, what was counted so far included. Null: back to nowhere (a fork's child).
  void publish_to(PageWriter* page) noexcept;

  // Each of these says whether it ended a step.
  void data_begin(ThreadClock& thread, uint64_t now_ns, const Fetch& fetch = {}) noexcept;
  void data_end(ThreadClock& thread, uint64_t now_ns, bool got_batch, const Fetch& fetch = {}) noexcept;
  void backward_begin(ThreadClock& thread, uint64_t now_ns) noexcept;
  bool backward_end(ThreadClock& thread, uint64_t now_ns, bool succeeded) noexcept;
  void optimizer_begin(ThreadClock& thread, uint64_t now_ns) noexcept;
  bool optimizer_end(ThreadClock& thread, uint64_t now_ns, uint32_t slot) noexcept;
  bool explicit_step(ThreadClock& thread, uint64_t now_ns) noexcept;

  // Nothing was going on in this thread until now (a notebook between two cells): the open step begins when something
  // does, and the next optimizer call may be of another training.
  void pause(ThreadClock& thread) noexcept;

  // A checkpoint is saved; of nested calls the outermost counts. `real_ns`: the time of day, for the last success.
  void save_begin(ThreadClock& thread, uint64_t now_ns) noexcept;
  void save_end(ThreadClock& thread, uint64_t now_ns, SaveOutcome outcome, uint64_t real_ns) noexcept;

  // An evaluation that the user marks.
  void evaluation_begin(ThreadClock& thread, uint64_t now_ns) noexcept;
  void evaluation_end(ThreadClock& thread, uint64_t now_ns) noexcept;

  // What the open step works on, by the user; from now on no batch's shape is asked.
  void give_samples(ThreadClock& thread, uint64_t samples) noexcept;
  void give_tokens(ThreadClock& thread, uint64_t tokens) noexcept;

  RunBody& run() noexcept { return run_; }

  // A name of pymon.phase: its slot, or -1 where all are taken.
  int phase_slot(const char* name, uint64_t bytes) noexcept;
  void phase(ThreadClock& thread, uint32_t slot, uint64_t duration_ns) noexcept;

  // What is left away from now on (enum Shed), and why it was: how often the budget did so, `overhead_ppm` of TrainBody.
  // A step that was under way then has no phases.
  void set_shed(uint64_t shed, uint64_t sheds_total, uint64_t overhead_ppm) noexcept;
  uint64_t shed() const noexcept { return body_->shed; }
  // No optimizer steps, as far as is known: the end of a backward pass may be that of a step.
  bool counts_backwards() const noexcept { return body_->counting == kCountNone || body_->counting == kCountBackward; }
  // Changes each time that counting begins anew after `pymon disarm`.
  uint32_t epoch() const noexcept { return epoch_; }
  // What this thread had gathered before then is no part of a step now.
  void restart(ThreadClock& thread) noexcept;

  // The optimizer runs: what the end of the step will touch may come in meanwhile.
  void prefetch() const noexcept;

  void set_capturing(bool on) noexcept;
  void set_thread(uint64_t tid) noexcept;
  void add_own(ThreadClock& thread, uint64_t cost_ns) noexcept;
  void reset() noexcept;  // a fork's child starts from nothing

  // The thread that last began a backward pass and is still inside it; null: none. What runs for a pass in threads of
  // the engine's own belongs to the thread that waits for it.
  ThreadClock* waiting() const noexcept { return waiting_; }

  void publish() noexcept;
  uint64_t steps_total() const noexcept { return body_->steps_total; }
  const TrainBody& body() const noexcept { return *body_; }

 private:
  void begin_step(ThreadClock& thread, uint64_t now_ns) noexcept;
  void end_step(ThreadClock& thread, uint64_t now_ns, Counting counting) noexcept;
  bool ends_iteration(ThreadClock& thread, uint64_t now_ns, uint32_t slot) noexcept;
  void end_newcomers_step(ThreadClock& thread) noexcept;
  uint16_t add(uint64_t (&buckets)[kHistogramBuckets], uint64_t duration_ns) noexcept;
  void publish_if_due(uint64_t now_ns) noexcept;
  void note_doing(Phase phase, uint64_t now_ns) noexcept;
  void publish_run(uint64_t now_ns) noexcept;
  void note_start(const RingEntry& first, uint64_t now_ns) noexcept;
  void note_stall(uint64_t duration_ns) noexcept;

  bool is_for_training(const ThreadClock& thread) const noexcept { return body_->training_tid == 0 || thread.trains; }
  void set_state(RunState state, uint64_t now_ns) noexcept;
  void watch_fetch(ThreadClock& thread, uint64_t now_ns, const Fetch& fetch) noexcept;
  void watch_batch(ThreadClock& thread, uint64_t now_ns, bool got_batch, const Fetch& fetch) noexcept;
  void note_wait(const Loader* loader, uint64_t wait_ns, uint64_t first_ns) noexcept;
  void settle_evaluation(ThreadClock& thread, uint64_t end_ns, bool trains) noexcept;
  void close_evaluation(ThreadClock& thread, uint64_t end_ns) noexcept;
  void learn_loaders(ThreadClock& thread) noexcept;

  RunBody run_{};
  uint64_t run_published_ns_ = 0;
  const Loader* settings_of_ = nullptr;  // whose `run_` shows
  bool loader_trains_ = false;           // some loader is known to
  bool samples_given_ = false, tokens_given_ = false;
  TrainBody unpublished_{};
  TrainBody* body_;
  PageWriter* page_ = nullptr;
  ThreadClock* waiting_ = nullptr;
  bool profiled_step_ = false;
  bool unphased_step_ = false;
  uint32_t epoch_ = 0;
  uint64_t published_ns_ = 0;
};

}  // namespace pymon
