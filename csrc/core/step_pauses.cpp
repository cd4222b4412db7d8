// What lies between steps: evaluations and checkpoint saves; and what batches tell of the loader they came from.
//
// An evaluation is a run of batches without a backward pass. Where gradients are off as a batch is fetched, it is one
// at once. Where they are on (the Trainer of transformers), it is one if the batch comes from a loader that never fed a
// backward pass while another one has, and if then the loader ends or the other one is asked again; a backward pass
// before that shows that it trains, and nothing is taken from the step.
#include <algorithm>
#include <cstring>

#include "core/histogram.h"
#include "core/step_clock.h"

namespace pymon {
namespace {

uint64_t since(uint64_t begin_ns, uint64_t now_ns) noexcept { return now_ns > begin_ns ? now_ns - begin_ns : 0; }

// `took_ns` belong to no step: whatever is going on in this thread began that much later.
void leave_out(ThreadClock& thread, uint64_t took_ns) noexcept {
  thread.left_out = true;
  for (uint64_t* begin_ns : {&thread.step_begin_ns, &thread.forward_begin_ns, &thread.last_backward_end_ns}) {
    if (*begin_ns != 0) *begin_ns += took_ns;
  }
  if (thread.data_depth > 0) thread.data_begin_ns += took_ns;
  if (thread.backward_depth > 0) thread.backward_begin_ns += took_ns;
  if (thread.armed) thread.optimizer_begin_ns += took_ns;
  if (thread.newcomer_slot != 0) thread.newcomer_ns += took_ns;
}

void forget(ThreadClock& thread, const Loader* loader) noexcept {
  for (Loader*& one : thread.new_loaders) {
    if (one == loader) one = nullptr;
  }
}

void remember(ThreadClock& thread, Loader* loader) noexcept {
  forget(thread, loader);
  for (Loader*& one : thread.new_loaders) {
    if (one != nullptr) continue;
    one = loader;
    return;
  }
}

}  // namespace

void StepClock::set_state(RunState state, uint64_t now_ns) noexcept {
  if (run_.state == state) return;
  run_.state = state;
  run_.state_since_mono_ns = now_ns;
  publish_run(now_ns);
}

void StepClock::watch_fetch(ThreadClock& thread, uint64_t now_ns, const Fetch& fetch) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (evaluation.marks > 0) return;
  const bool sure = !fetch.grad && body_->backwards_total > 0;
  const bool is_new = fetch.grad && fetch.loader != nullptr && !fetch.loader->trains;
  if (is_new) remember(thread, fetch.loader);
  if (!sure && !(is_new && loader_trains_)) {
    close_evaluation(thread, now_ns);
    return;
  }
  if (evaluation.open && evaluation.sure && !sure) {
    close_evaluation(thread, now_ns);  // gradients are on again: another loader, which may train
    remember(thread, fetch.loader);
  }
  if (evaluation.open) {
    evaluation.sure |= sure;
    return;
  }
  const bool beside = fetch.iterator != nullptr && fetch.iterator == evaluation.iterator;
  if (!sure && beside && evaluation.batches == 1) {  // a batch a step, beside those of another loader
    fetch.loader->trains = true;
    forget(thread, fetch.loader);
    return;
  }
  evaluation.open = true;
  evaluation.sure = sure;
  evaluation.batches = 0;
  evaluation.begin_ns = evaluation.last_fetch_ns = now_ns;
  evaluation.before = thread.open;
}

void StepClock::watch_batch(ThreadClock& thread, uint64_t now_ns, bool got_batch, const Fetch& fetch) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (fetch.starts) {
    ++run_.loaders_total;
    thread.began_ns = thread.data_begin_ns;
    if (evaluation.iterator == fetch.iterator) evaluation.iterator = nullptr;  // begun anew, or another at its address
    return;
  }
  const uint64_t wait_ns = since(thread.data_begin_ns, now_ns);
  const uint64_t first_ns = thread.began_ns != 0 ? since(thread.began_ns, now_ns) : 0;
  thread.began_ns = 0;
  if (got_batch) {
    if (!samples_given_) thread.open.samples += fetch.samples;
    if (!tokens_given_) thread.open.tokens += fetch.tokens;
  }
  if (!evaluation.open) {
    if (got_batch) note_wait(fetch.loader, wait_ns, first_ns);
    else forget(thread, fetch.loader);
    return;
  }
  if (got_batch) ++evaluation.batches;
  evaluation.last_fetch_ns = now_ns;
  evaluation.iterator = fetch.iterator;
  if (evaluation.batches == 1) {
    evaluation.loader = fetch.loader;
    evaluation.wait_ns = wait_ns;
    evaluation.first_ns = first_ns;
  }
  if (evaluation.marks > 0) return;
  if (!got_batch) {
    close_evaluation(thread, now_ns);
  } else if (evaluation.sure || evaluation.batches > 1) {
    set_state(kRunEvaluating, now_ns);
  }
}

void StepClock::note_wait(const Loader* loader, uint64_t wait_ns, uint64_t first_ns) noexcept {
  if (loader != nullptr && loader != settings_of_) {
    const LoaderSettings& settings = loader->settings;
    settings_of_ = loader;
    body_->loader_workers_plus_1 = run_.workers_plus_1 = settings.workers_plus_1;
    run_.prefetch_factor_plus_1 = settings.prefetch_factor_plus_1;
    run_.loader_flags_plus_1 = settings.flags_plus_1;
    run_.sharing_strategy = settings.sharing_strategy;
    run_.start_method = settings.start_method;
    run_.batch_size = settings.batch_size;
  }
  histogram_add(run_.wait_histogram, wait_ns);
  run_.wait_ns_total += wait_ns;
  if (first_ns == 0) return;
  ++run_.first_batches_total;
  run_.first_batch_ns_total += first_ns;
  run_.last_first_batch_ns = first_ns;
}

void StepClock::settle_evaluation(ThreadClock& thread, uint64_t end_ns, bool trains) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (!evaluation.open || evaluation.marks > 0) return;
  if (evaluation.sure || (!trains && evaluation.batches > 1)) {
    close_evaluation(thread, end_ns);
    return;
  }
  evaluation.open = false;
  evaluation.iterator = nullptr;
  if (evaluation.batches > 0) note_wait(evaluation.loader, evaluation.wait_ns, evaluation.first_ns);
  if (run_.state == kRunEvaluating) set_state(kRunTraining, end_ns);
}

void StepClock::close_evaluation(ThreadClock& thread, uint64_t end_ns) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (!evaluation.open) return;
  evaluation.open = false;
  if (evaluation.batches == 0 && !evaluation.marked) return;  // an iterator made for later
  const uint64_t took_ns = since(evaluation.begin_ns, end_ns);
  OpenStep& open = thread.open;
  OpenStep before = evaluation.before;
  before.own_ns = open.own_ns;
  before.phase_ns[kCheckpoint] = open.phase_ns[kCheckpoint];
  std::copy(open.phase_ns + kUserPhaseFirst, open.phase_ns + kPhases, before.phase_ns + kUserPhaseFirst);
  open = before;
  open.phase_ns[kEvaluation] += took_ns;
  body_->phase_ns_total[kEvaluation] += took_ns;
  leave_out(thread, took_ns);
  ++run_.evaluations_total;
  run_.evaluation_batches_total += evaluation.batches;
  std::fill(std::begin(thread.new_loaders), std::end(thread.new_loaders), nullptr);
  if (run_.state == kRunEvaluating) set_state(kRunTraining, end_ns);
  publish();  // the last evaluation of a run is followed by no step
}

void StepClock::learn_loaders(ThreadClock& thread) noexcept {
  for (Loader*& loader : thread.new_loaders) {
    if (loader == nullptr) continue;
    loader->trains = loader_trains_ = true;
    loader = nullptr;
  }
}

void StepClock::evaluation_begin(ThreadClock& thread, uint64_t now_ns) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (evaluation.marks++ > 0) return;
  close_evaluation(thread, now_ns);
  evaluation.open = evaluation.sure = evaluation.marked = true;
  evaluation.batches = 0;
  evaluation.begin_ns = evaluation.last_fetch_ns = now_ns;
  evaluation.before = thread.open;
  if (body_->steps_total > 0) set_state(kRunEvaluating, now_ns);
}

void StepClock::evaluation_end(ThreadClock& thread, uint64_t now_ns) noexcept {
  Evaluation& evaluation = thread.evaluation;
  if (evaluation.marks == 0 || --evaluation.marks > 0) return;
  close_evaluation(thread, now_ns);
  evaluation.marked = false;
}

void StepClock::save_begin(ThreadClock& thread, uint64_t now_ns) noexcept {
  if (thread.save_depth++ > 0) return;
  thread.save_begin_ns = now_ns;
  if (thread.trains) set_state(kRunCheckpointing, now_ns);
}

void StepClock::save_end(ThreadClock& thread, uint64_t now_ns, SaveOutcome outcome, uint64_t real_ns) noexcept {
  if (thread.save_depth == 0 || --thread.save_depth > 0) return;
  const uint64_t took_ns = since(thread.save_begin_ns, now_ns);
  if (outcome == kSaveFailed) ++run_.saves_failed_total;
  if (outcome == kSaveSucceeded) {
    ++run_.saves_total;
    run_.last_save_real_ns = real_ns;
    run_.last_save_ns = took_ns;
  }
  if (!is_for_training(thread)) {
    run_.background_save_ns_total += took_ns;
    publish_run(now_ns);
    return;
  }
  thread.open.phase_ns[kCheckpoint] += took_ns;
  body_->phase_ns_total[kCheckpoint] += took_ns;
  leave_out(thread, took_ns);
  if (thread.evaluation.open) thread.evaluation.begin_ns += took_ns;
  const bool evaluates = thread.evaluation.open && thread.evaluation.sure;
  const RunState training = body_->steps_total > 0 ? kRunTraining : kRunStarting;
  if (thread.trains) set_state(evaluates ? kRunEvaluating : training, now_ns);
  publish();  // the last save of a run is followed by no step
}

void StepClock::give_samples(ThreadClock& thread, uint64_t samples) noexcept {
  if (!samples_given_) thread.open.samples = 0;
  samples_given_ = true;
  thread.open.samples += samples;
}

void StepClock::give_tokens(ThreadClock& thread, uint64_t tokens) noexcept {
  if (!tokens_given_) thread.open.tokens = 0;
  tokens_given_ = true;
  thread.open.tokens += tokens;
}

}  // namespace pymon
