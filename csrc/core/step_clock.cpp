#include "core/step_clock.h"

#include <algorithm>
#include <cstring>

#include "core/histogram.h"

namespace pymon {
namespace {

constexpr uint64_t kPublishEveryNs = 1'000'000'000;  // between boundaries; the daemon looks once a second
constexpr uint64_t kBlockedSteps = 5, kUsualSteps = 50;

uint64_t since(uint64_t begin_ns, uint64_t now_ns) noexcept { return now_ns > begin_ns ? now_ns - begin_ns : 0; }

uint64_t pack_counts(const ThreadClock& thread) noexcept {
  const auto cut = [](uint64_t value) { return std::min<uint64_t>(value, 0xFFFF); };
  return cut(thread.open.backwards) | cut(thread.open.optimizer_calls) << 16 | cut(thread.open.batches) << 32;
}

}  // namespace

void StepClock::publish_to(PageWriter* page) noexcept {
  TrainBody* body = page == nullptr ? &unpublished_ : &page->body();
  if (body != body_) *body = *body_;
  body_ = body;
  page_ = page;
  publish();
}

void StepClock::set_shed(uint64_t shed, uint64_t sheds_total, uint64_t overhead_ppm) noexcept {
  if (body_->shed >= kShedAll && shed < kShedAll) ++epoch_;
  if (shed >= kShedPhases || body_->shed >= kShedPhases) unphased_step_ = true;
  if (shed >= kShedPhases && page_ != nullptr) page_->note_doing(0);
  body_->shed = shed;
  body_->sheds_total = sheds_total;
  body_->overhead_ppm = overhead_ppm;
  publish();
}

void StepClock::restart(ThreadClock& thread) noexcept {
  thread.epoch = epoch_;
  if (thread.backward_depth > 0 || thread.data_depth > 0) return;
  const bool trains = thread.trains;
  thread = ThreadClock{};
  thread.epoch = epoch_;
  thread.trains = trains;
}

void StepClock::prefetch() const noexcept {
  if (page_ != nullptr) page_->prefetch_step(body_->steps_total + 1);
}

void StepClock::note_doing(Phase phase, uint64_t now_ns) noexcept {
  if (page_ == nullptr || body_->shed >= kShedPhases) return;
  page_->note_doing(uint64_t{phase + 1u} << kDoingShift | (now_ns & ((uint64_t{1} << kDoingShift) - 1)));
}

void StepClock::data_begin(ThreadClock& thread, uint64_t now_ns, const Fetch& fetch) noexcept {
  if (thread.data_depth++ > 0) return;
  begin_step(thread, now_ns);
  if (is_for_training(thread)) {
    thread.ended_phase = kOther;
    watch_fetch(thread, now_ns, fetch);
  }
  thread.data_begin_ns = now_ns;
  if (body_->training_tid == 0 || thread.trains) note_doing(kDataWait, now_ns);
  thread.forward_begin_ns = 0;  // a fetch without a backward pass since the last one: that was no forward
}

void StepClock::data_end(ThreadClock& thread, uint64_t now_ns, bool got_batch, const Fetch& fetch) noexcept {
  if (thread.data_depth == 0 || --thread.data_depth > 0) return;
  if (!is_for_training(thread)) {  // another thread trains: this one loads ahead for it
    body_->prefetches_total += got_batch;
    publish_if_due(now_ns);
    return;
  }
  const uint64_t took_ns = since(thread.data_begin_ns, now_ns);
  thread.ended_phase = kDataWait;
  thread.open.phase_ns[kDataWait] += took_ns;
  if (thread.armed) thread.optimizer_begin_ns += took_ns;  // a fetch within the optimizer call is not its time
  thread.open.batches += got_batch;
  body_->batches_total += got_batch;
  thread.fresh |= got_batch;
  thread.forward_begin_ns = now_ns;
  watch_batch(thread, now_ns, got_batch, fetch);
  note_doing(kForward, now_ns);
  publish_if_due(now_ns);
}

void StepClock::backward_begin(ThreadClock& thread, uint64_t now_ns) noexcept {
  if (thread.backward_depth++ > 0) return;
  thread.waited_before = waiting_;
  waiting_ = &thread;
  begin_step(thread, now_ns);
  thread.trains = true;
  settle_evaluation(thread, thread.evaluation.last_fetch_ns, true);
  learn_loaders(thread);
  thread.backward_begin_ns = now_ns;
  note_doing(kBackward, now_ns);
  thread.optimizer_in_backward_ns = 0;
  thread.stepped_in_backward = false;
  // The next micro-batch of a group that was fetched at once starts where the backward pass before ended.
  const uint64_t begin_ns = thread.forward_begin_ns ? thread.forward_begin_ns : thread.last_backward_end_ns;
  if (begin_ns != 0) thread.open.phase_ns[kForward] += since(begin_ns, now_ns);
  thread.ended_phase = begin_ns != 0 ? kForward : kOther;
  thread.forward_begin_ns = 0;
}

bool StepClock::backward_end(ThreadClock& thread, uint64_t now_ns, bool succeeded) noexcept {
  if (thread.backward_depth == 0 || --thread.backward_depth > 0) return false;
  for (ThreadClock** link = &waiting_; *link != nullptr; link = &(*link)->waited_before) {
    if (*link != &thread) continue;
    *link = thread.waited_before;  // passes of several threads end in any order
    break;
  }
  thread.open.phase_ns[kBackward] += since(thread.backward_begin_ns + thread.optimizer_in_backward_ns, now_ns);
  thread.ended_phase = kBackward;
  note_doing(kOther, now_ns);
  thread.last_backward_end_ns = now_ns;
  thread.fresh = true;
  if (!succeeded) {
    publish_if_due(now_ns);
    return false;
  }
  ++thread.open.backwards;
  ++body_->backwards_total;
  if (thread.stepped_in_backward && body_->counting != kCountExplicit) {
    thread.fresh = false;  // an empty step() after the pass, which some frameworks still call, is none
    end_step(thread, now_ns, kCountOptimizer);
    return true;
  }
  const bool estimates = body_->counting == kCountBackward ||
                         (body_->counting == kCountNone && body_->backwards_total > kBackwardsBeforeEstimate);
  if (estimates) {
    end_step(thread, now_ns, kCountBackward);
    return true;
  }
  publish_if_due(now_ns);
  return false;
}

void StepClock::optimizer_begin(ThreadClock& thread, uint64_t now_ns) noexcept {
  begin_step(thread, now_ns);
  settle_evaluation(thread, thread.evaluation.last_fetch_ns, true);
  // A call that raised left `armed` behind; a backward pass since then tells it from a nested call.
  const bool nested = thread.armed && thread.last_backward_end_ns <= thread.optimizer_begin_ns;
  if (!nested) {
    thread.optimizer_begin_ns = now_ns;
    if (thread.backward_depth == 0) note_doing(kOptimizer, now_ns);
    thread.ended_phase = thread.backward_depth > 0 ? kBackward : kOther;
  }
  thread.armed = true;
}

bool StepClock::optimizer_end(ThreadClock& thread, uint64_t now_ns, uint32_t slot) noexcept {
  if (!thread.armed) return false;
  thread.armed = false;
  thread.trains = true;
  thread.ended_phase = kOptimizer;
  ++thread.open.optimizer_calls;
  ++body_->optimizer_calls_total;
  // Closures run forward and backward inside the call: only what follows the last backward pass is the optimizer's.
  const bool in_backward = thread.backward_depth > 0;
  const uint64_t begin_ns = in_backward ? thread.optimizer_begin_ns
                                        : std::max(thread.optimizer_begin_ns, thread.last_backward_end_ns);
  const uint64_t took_ns = since(begin_ns, now_ns);
  thread.open.phase_ns[kOptimizer] += took_ns;
  if (!in_backward) note_doing(kOther, now_ns);
  // The forward pass of a second optimizer begins here at the earliest, or the phases would sum to more than the step.
  thread.last_backward_end_ns = now_ns;
  if (thread.forward_begin_ns != 0) thread.forward_begin_ns = now_ns;
  if (in_backward) {
    thread.optimizer_in_backward_ns += took_ns;
    thread.stepped_in_backward = true;
    return false;  // the end of the pass ends the step
  }
  if (body_->counting == kCountExplicit) {
    publish_if_due(now_ns);
    return false;
  }
  if (!ends_iteration(thread, now_ns, slot)) {
    publish_if_due(now_ns);
    return false;
  }
  end_step(thread, now_ns, kCountOptimizer);
  return true;
}

bool StepClock::ends_iteration(ThreadClock& thread, uint64_t now_ns, uint32_t slot) noexcept {
  const uint64_t bit = slot < kOptimizerSlots ? uint64_t{1} << slot : 0;
  thread.stale_calls = thread.fresh ? 0 : std::min(thread.stale_calls + 1, kStaleCalls + 1);
  const bool stale = !thread.fresh && thread.stale_calls <= kStaleCalls;
  thread.fresh = false;
  const bool repeats = !stale && ((thread.seen_slots & bit) != 0 || thread.seen_slots == 0);
  if (!repeats) {
    const bool newcomer = thread.known_slots != 0 && ((thread.known_slots | thread.seen_slots) & bit) == 0;
    if (newcomer && !stale && thread.newcomer_slot == 0) {
      thread.newcomer_slot = bit;
      thread.newcomer_ns = now_ns;
      thread.newcomer_step = thread.open;
      thread.seen_before_newcomer = thread.seen_slots;
    }
    thread.seen_slots |= bit;
    return false;
  }
  thread.known_slots = thread.seen_slots;
  if (thread.newcomer_slot != 0 && thread.newcomer_slot == bit) {
    thread.known_slots &= ~thread.seen_before_newcomer;
    end_newcomers_step(thread);
  }
  thread.newcomer_slot = 0;
  body_->optimizers_seen = std::max(__builtin_popcountll(thread.known_slots), 1);
  thread.seen_slots = bit;
  return true;
}

// Its first call ended a step, as is known now that the optimizers before it did not come again.
void StepClock::end_newcomers_step(ThreadClock& thread) noexcept {
  OpenStep since_then = thread.open;
  since_then.subtract(thread.newcomer_step);
  thread.open = thread.newcomer_step;
  end_step(thread, thread.newcomer_ns, kCountOptimizer);
  thread.open = since_then;
}

bool StepClock::explicit_step(ThreadClock& thread, uint64_t now_ns) noexcept {
  begin_step(thread, now_ns);
  thread.trains = true;
  settle_evaluation(thread, now_ns, false);
  thread.ended_phase = kOther;
  const bool by_hooks = body_->counting == kCountOptimizer || body_->counting == kCountBackward;
  const OpenStep& open = thread.open;
  const bool another = open.optimizer_calls == 0 && (open.batches > 0 || open.backwards > 0);
  body_->counting = kCountExplicit;
  if (by_hooks && !another) {  // the hooks counted this very step before they were told not to
    thread.open.samples = thread.open.tokens = 0;
    return false;
  }
  end_step(thread, now_ns, kCountExplicit);
  return true;
}

void StepClock::pause(ThreadClock& thread) noexcept {
  if (thread.backward_depth > 0 || thread.data_depth > 0) return;
  close_evaluation(thread, thread.evaluation.last_fetch_ns);
  publish();
  std::memset(thread.open.phase_ns, 0, sizeof thread.open.phase_ns);
  thread.step_begin_ns = thread.forward_begin_ns = thread.last_backward_end_ns = 0;
  thread.seen_slots = thread.known_slots = thread.newcomer_slot = 0;
  thread.armed = false;
}

int StepClock::phase_slot(const char* name, uint64_t bytes) noexcept {
  bytes = std::min<uint64_t>(bytes, kUserPhaseNameBytes - 1);
  for (uint64_t i = 0; i < body_->user_phases; ++i) {
    const char* known = body_->user_phase_names[i];
    if (std::strlen(known) == bytes && std::memcmp(known, name, bytes) == 0) return static_cast<int>(i);
  }
  if (body_->user_phases >= kUserPhases) {
    ++body_->dropped_total;
    return -1;
  }
  std::memcpy(body_->user_phase_names[body_->user_phases], name, bytes);
  const auto slot = static_cast<int>(body_->user_phases++);
  publish();  // the names are no part of what a step publishes
  return slot;
}

void StepClock::phase(ThreadClock& thread, uint32_t slot, uint64_t duration_ns) noexcept {
  if (slot < kUserPhases) thread.open.phase_ns[kUserPhaseFirst + slot] += duration_ns;
}

void StepClock::set_capturing(bool on) noexcept {
  body_->capturing = on;
  profiled_step_ |= on;
}

void StepClock::set_thread(uint64_t tid) noexcept {
  if (body_->training_tid == 0) body_->training_tid = tid;
}

void StepClock::add_own(ThreadClock& thread, uint64_t cost_ns) noexcept {
  thread.open.own_ns += cost_ns;
  body_->own_ns_total += cost_ns;
}

void StepClock::reset() noexcept {
  page_ = nullptr;
  waiting_ = nullptr;
  body_ = &unpublished_;
  unpublished_ = TrainBody{};
  run_ = RunBody{};
  settings_of_ = nullptr;
  profiled_step_ = unphased_step_ = loader_trains_ = samples_given_ = tokens_given_ = false;
  published_ns_ = run_published_ns_ = 0;
}

void StepClock::begin_step(ThreadClock& thread, uint64_t now_ns) noexcept {
  if (thread.step_begin_ns != 0) return;
  thread.step_begin_ns = now_ns;
  if (body_->first_boundary_mono_ns == 0) body_->first_boundary_mono_ns = now_ns;
}

// Counts it; gives the word that changed.
uint16_t StepClock::add(uint64_t (&buckets)[kHistogramBuckets], uint64_t duration_ns) noexcept {
  uint64_t& bucket = buckets[histogram_bucket(duration_ns)];
  ++bucket;
  return static_cast<uint16_t>(&bucket - reinterpret_cast<uint64_t*>(body_));
}

void StepClock::end_step(ThreadClock& thread, uint64_t now_ns, Counting counting) noexcept {
  close_evaluation(thread, now_ns);  // one that the user marked, and trained in
  RingEntry entry{};
  entry.step = ++body_->steps_total;
  entry.end_mono_ns = now_ns;
  entry.duration_ns = since(thread.step_begin_ns, now_ns);
  entry.counts = pack_counts(thread);
  if (profiled_step_) entry.flags |= kStepProfiled;
  if (counting == kCountBackward) entry.flags |= kStepEstimated;
  entry.own_ns = thread.open.own_ns;
  entry.samples = thread.open.samples;
  entry.tokens = thread.open.tokens;
  body_->counting = counting;
  body_->step_ns_total += entry.duration_ns;
  body_->last_boundary_mono_ns = now_ns;
  body_->samples_total += entry.samples;
  body_->tokens_total += entry.tokens;
  note_stall(entry.duration_ns);
  uint16_t changed[1 + kOther + 1];
  uint32_t changes = 0;
  changed[changes++] = add(body_->step_histogram, entry.duration_ns);
  if (unphased_step_) {
    entry.flags |= kStepUnphased;
    for (const Phase beside : {kEvaluation, kCheckpoint}) entry.phase_ns[beside] = thread.open.phase_ns[beside];
  } else {
    uint64_t named_ns = 0;
    for (uint32_t slot = 0; slot < kOther; ++slot) named_ns += thread.open.phase_ns[slot];
    thread.open.phase_ns[kOther] = since(named_ns, entry.duration_ns);
    std::memcpy(entry.phase_ns, thread.open.phase_ns, sizeof entry.phase_ns);
    for (uint32_t slot = 0; slot < kPhases; ++slot) {
      if (slot == kEvaluation || slot == kCheckpoint) continue;  // added when they ended: no step may follow
      body_->phase_ns_total[slot] += entry.phase_ns[slot];
    }
    for (uint32_t slot = 0; slot <= kOther; ++slot) {
      changed[changes++] = add(body_->phase_histogram[slot], entry.phase_ns[slot]);
    }
  }
  if (body_->shed >= kShedRecords) {
    publish_if_due(now_ns);
  } else if (page_ != nullptr) {
    page_->push_step(entry);  // before the total, so that a reader of the total finds the step
    page_->publish_step(changed, changes);
    published_ns_ = now_ns;
  }
  if (entry.step == 1) {
    note_start(entry, now_ns);
  } else if (since(run_published_ns_, now_ns) >= kPublishEveryNs) {
    publish_run(now_ns);
  }
  profiled_step_ = body_->capturing != 0;
  unphased_step_ = body_->shed >= kShedPhases;

  // Where no batch came in this step, the forward pass is what comes next, else the next batch.
  thread.forward_begin_ns = thread.open.batches != 0 ? 0 : now_ns;
  thread.open = OpenStep{};
  thread.step_begin_ns = now_ns;
  thread.last_backward_end_ns = 0;
  thread.stepped_in_backward = false;
}

void StepClock::note_start(const RingEntry& first, uint64_t now_ns) noexcept {
  const uint64_t lived_ns = since(run_.process_start_mono_ns, now_ns);
  const uint64_t beside_ns = first.phase_ns[kEvaluation] + first.phase_ns[kCheckpoint];
  if (run_.process_start_mono_ns != 0) run_.startup_ns = since(beside_ns, lived_ns);
  run_.first_step_ns = first.duration_ns;
  set_state(kRunTraining, now_ns);
}

// A step of five times the mean of the last fifty is one that was blocked (arXiv 2506.08528); the mean takes such a
// step for five times itself at most, so that a lasting change is the usual soon and one stop is not.
void StepClock::note_stall(uint64_t duration_ns) noexcept {
  if (body_->steps_total < 2 || profiled_step_) return;  // the first one compiles and allocates: that is start-up
  const uint64_t usual_ns = body_->usual_step_ns;
  if (body_->steps_total > kUsualSteps && duration_ns >= kBlockedSteps * usual_ns) {
    body_->stall_ns_total += duration_ns - usual_ns;
  }
  const uint64_t most_ns = usual_ns == 0 ? duration_ns : kBlockedSteps * usual_ns;
  const auto weight = static_cast<int64_t>(std::min<uint64_t>(body_->steps_total - 1, kUsualSteps));
  const int64_t change_ns = static_cast<int64_t>(std::min(duration_ns, most_ns)) - static_cast<int64_t>(usual_ns);
  body_->usual_step_ns = static_cast<uint64_t>(static_cast<int64_t>(usual_ns) + change_ns / weight);
}

void StepClock::publish() noexcept {
  if (page_ == nullptr) return;
  page_->publish();
  page_->publish_run(run_);
}

void StepClock::publish_run(uint64_t now_ns) noexcept {
  run_published_ns_ = now_ns;
  if (page_ != nullptr) page_->publish_run(run_);
}

void StepClock::publish_if_due(uint64_t now_ns) noexcept {
  if (page_ == nullptr || since(published_ns_, now_ns) < kPublishEveryNs) return;
  publish();
  published_ns_ = run_published_ns_ = now_ns;
}

}  // namespace pymon
