// Evaluations and saves between steps, and what loaders tell; times are made up, in nanoseconds.
#include <doctest/doctest.h>

#include <numeric>

#include "core/step_clock.h"

using namespace pymon;

namespace {

struct Loop {
  StepClock clock;
  ThreadClock thread;
  Loader training, held_out;
  int training_iterator = 0, other_iterator = 0;
  uint64_t now = 1000;
  uint64_t after(uint64_t ns) { return now += ns; }

  void fetch(Loader& loader, int& iterator, uint64_t wait, bool got = true, bool grad = true) {
    Fetch about;
    about.loader = &loader;
    about.iterator = &iterator;
    about.grad = grad;
    about.samples = 8;
    clock.data_begin(thread, now, about);
    clock.data_end(thread, after(wait), got, about);
  }
  void train() { fetch(training, training_iterator, 100); }
  void evaluate(bool grad, bool got = true) { fetch(held_out, other_iterator, 100, got, grad); }
  bool update() {
    clock.backward_begin(thread, after(200));
    clock.backward_end(thread, after(300), true);
    clock.optimizer_begin(thread, after(10));
    return clock.optimizer_end(thread, after(50), 0);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      train();
      CHECK(update());
    }
  }
  const TrainBody& body() const { return clock.body(); }
  uint64_t phases() const { return std::accumulate(body().phase_ns_total, body().phase_ns_total + kOther + 1, 0ull); }
};

}  // namespace

TEST_CASE("an evaluation is taken out of the step it lies in, and its batches out of the samples") {
  for (const bool grad : {false, true}) {
    Loop loop;
    loop.steps(3);
    for (int batch = 0; batch < 5; ++batch) {
      loop.evaluate(grad);
      loop.after(1000);
    }
    loop.evaluate(grad, false);
    loop.steps(3);
    CHECK(loop.body().steps_total == 6);
    CHECK(loop.body().step_ns_total == 6 * 660);
    CHECK(loop.phases() == loop.body().step_ns_total);
    CHECK(loop.body().phase_ns_total[kEvaluation] == 5 * 1100 + 100);
    CHECK(loop.body().samples_total == 6 * 8);
    CHECK(loop.clock.run().evaluations_total == 1);
    CHECK(loop.clock.run().evaluation_batches_total == 5);
  }
}

TEST_CASE("one that stops early ends with the next batch of training") {
  Loop loop;
  loop.steps(2);
  for (int batch = 0; batch < 3; ++batch) loop.evaluate(true);
  loop.after(500);
  loop.steps(2);
  CHECK(loop.body().phase_ns_total[kEvaluation] == 3 * 100 + 500);
  CHECK(loop.body().step_ns_total == 4 * 660);
}

TEST_CASE("a new loader that trains is none, however many of its batches are fetched at once") {
  Loop loop;
  loop.steps(2);
  Loader next;
  int iterator = 0;
  for (int batch = 0; batch < 4; ++batch) loop.fetch(next, iterator, 100);
  loop.update();
  CHECK(loop.body().phase_ns_total[kEvaluation] == 0);
  CHECK(next.trains);
  CHECK(loop.phases() == loop.body().step_ns_total);
  CHECK(loop.clock.run().evaluations_total == 0);
}

TEST_CASE("a loader of whose batches one is fetched beside each of another's is learned to train") {
  Loop loop;
  loop.steps(2);
  for (int i = 0; i < 3; ++i) {
    loop.evaluate(true);
    loop.steps(1);
  }
  CHECK(loop.held_out.trains);
  CHECK(loop.clock.run().evaluations_total <= 1);
}

TEST_CASE("before the first backward pass nothing is told apart") {
  Loop loop;
  for (const bool grad : {false, true}) loop.evaluate(grad);
  loop.evaluate(true, false);
  CHECK(loop.body().phase_ns_total[kEvaluation] == 0);
  loop.steps(1);
  CHECK(loop.phases() == loop.body().step_ns_total);
  CHECK_FALSE(loop.held_out.trains);
}

TEST_CASE("a save is taken out of whatever goes on, and counted where it ended") {
  Loop loop;
  loop.steps(2);
  loop.train();
  loop.clock.save_begin(loop.thread, loop.after(10));
  loop.clock.save_begin(loop.thread, loop.after(10));  // of the framework's own
  loop.clock.save_end(loop.thread, loop.after(100), kSaveSucceeded, 1);
  CHECK(loop.clock.run().state == kRunCheckpointing);
  loop.clock.save_end(loop.thread, loop.after(70), kSaveSucceeded, 77);
  CHECK(loop.clock.run().state == kRunTraining);
  loop.update();
  CHECK(loop.body().phase_ns_total[kCheckpoint] == 180);
  CHECK(loop.body().step_ns_total == 3 * 660 + 10);
  CHECK(loop.phases() == loop.body().step_ns_total);
  CHECK(loop.clock.run().saves_total == 1);
  CHECK(loop.clock.run().last_save_real_ns == 77);
  CHECK(loop.clock.run().last_save_ns == 180);

  loop.clock.save_begin(loop.thread, loop.now);
  loop.clock.save_end(loop.thread, loop.after(5), kSaveFailed, 99);
  loop.clock.save_begin(loop.thread, loop.now);
  loop.clock.save_end(loop.thread, loop.after(5), kSaveGoesOn, 99);
  CHECK(loop.clock.run().saves_total == 1);
  CHECK(loop.clock.run().saves_failed_total == 1);
  CHECK(loop.clock.run().last_save_real_ns == 77);
}

TEST_CASE("a save within an evaluation is no part of it") {
  Loop loop;
  loop.steps(2);
  loop.evaluate(false);
  loop.clock.save_begin(loop.thread, loop.now);
  loop.clock.save_end(loop.thread, loop.after(1000), kSaveSucceeded, 1);
  loop.evaluate(false, false);
  loop.steps(1);
  CHECK(loop.body().phase_ns_total[kEvaluation] == 200);
  CHECK(loop.body().phase_ns_total[kCheckpoint] == 1000);
  CHECK(loop.body().step_ns_total == 3 * 660);
}

TEST_CASE("what the user marks is an evaluation, whatever runs in it") {
  Loop loop;
  loop.steps(2);
  loop.clock.evaluation_begin(loop.thread, loop.now);
  loop.train();
  loop.clock.backward_begin(loop.thread, loop.after(10));
  loop.clock.backward_end(loop.thread, loop.after(10), true);
  loop.clock.evaluation_end(loop.thread, loop.after(10));
  loop.steps(1);
  CHECK(loop.body().phase_ns_total[kEvaluation] == 130);
  CHECK(loop.body().step_ns_total == 3 * 660);
}

TEST_CASE("a step of five times the usual is a stall; a lasting change is the usual soon") {
  Loop loop;
  loop.steps(60);
  CHECK(loop.body().usual_step_ns == 660);
  loop.train();
  loop.after(6600);
  loop.update();
  CHECK(loop.body().stall_ns_total == 6600);
  const uint64_t before = loop.body().stall_ns_total;
  for (int i = 0; i < 200; ++i) {
    loop.train();
    loop.after(6600);
    loop.update();
  }
  const uint64_t stalled = loop.body().stall_ns_total - before;
  CHECK(stalled < 40 * 7260);
  CHECK(loop.body().usual_step_ns > 7000);
}

TEST_CASE("waits are told by batch, first ones from the start of their iteration") {
  Loop loop;
  Fetch start;
  start.loader = &loop.training;
  start.starts = true;
  loop.clock.data_begin(loop.thread, loop.now, start);
  loop.clock.data_end(loop.thread, loop.after(900), false, start);
  loop.steps(3);
  const RunBody& run = loop.clock.run();
  CHECK(run.loaders_total == 1);
  CHECK(run.first_batches_total == 1);
  CHECK(run.last_first_batch_ns == 1000);
  CHECK(run.wait_ns_total == 300);
  CHECK(std::accumulate(run.wait_histogram, run.wait_histogram + kHistogramBuckets, 0ull) == 3);
  CHECK(loop.body().phase_ns_total[kDataWait] == 1200);
}
