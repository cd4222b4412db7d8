// Steps, phases and counts from events; times are made up, in nanoseconds.
#include "core/step_clock.h"

#include <doctest/doctest.h>

#include <memory>
#include <numeric>

#include "core/page_reader.h"

using namespace pymon;

namespace {

struct Loop {
  StepClock clock;
  ThreadClock thread;
  uint64_t now = 1000;
  uint64_t after(uint64_t ns) { return now += ns; }

  void fetch(uint64_t wait) {
    clock.data_begin(thread, now);
    clock.data_end(thread, after(wait), true);
  }
  bool backward(uint64_t forward, uint64_t took) {
    clock.backward_begin(thread, after(forward));
    return clock.backward_end(thread, after(took), true);
  }
  bool step(uint64_t before, uint64_t took, uint32_t slot = 0) {
    clock.optimizer_begin(thread, after(before));
    return clock.optimizer_end(thread, after(took), slot);
  }
  const TrainBody& body() const { return clock.body(); }
  uint64_t phases() const { return std::accumulate(body().phase_ns_total, body().phase_ns_total + kOther + 1, 0ull); }
};

}  // namespace

TEST_CASE("a plain loop: every nanosecond has its phase") {
  Loop loop;
  for (int i = 0; i < 5; ++i) {
    loop.fetch(100);
    loop.backward(200, 300);
    CHECK(loop.step(10, 50));
  }
  CHECK(loop.body().counting == kCountOptimizer);
  CHECK(loop.body().steps_total == 5);
  CHECK(loop.body().batches_total == 5);
  CHECK(loop.body().phase_ns_total[kDataWait] == 500);
  CHECK(loop.body().phase_ns_total[kForward] == 1000);
  CHECK(loop.body().phase_ns_total[kBackward] == 1500);
  CHECK(loop.body().phase_ns_total[kOptimizer] == 250);
  CHECK(loop.body().phase_ns_total[kOther] == 50);
  CHECK(loop.body().step_ns_total == 5 * 660);
}

TEST_CASE("two optimizers in turn make one step, and their phases do not overlap") {
  Loop loop;
  for (int i = 0; i < 5; ++i) {
    loop.fetch(100);
    loop.backward(200, 300);
    loop.step(10, 50, 0);
    loop.backward(70, 30);
    CHECK_FALSE(loop.step(5, 20, 1));
  }
  CHECK(loop.body().steps_total == 5);
  CHECK(loop.body().optimizer_calls_total == 10);
  CHECK(loop.body().optimizers_seen == 2);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("a nested call counts once, and one that raised not at all") {
  Loop loop;
  loop.backward(1, 1);
  loop.clock.optimizer_begin(loop.thread, loop.after(1));
  CHECK(loop.step(1, 1));
  CHECK_FALSE(loop.clock.optimizer_end(loop.thread, loop.after(1), 1));
  loop.clock.optimizer_begin(loop.thread, loop.after(1));  // raises
  loop.backward(1, 1);
  CHECK(loop.step(1, 1));
  CHECK(loop.body().steps_total == 2);
  CHECK(loop.body().optimizer_calls_total == 2);
}

TEST_CASE("forward and backward inside the optimizer's call are not its time") {
  Loop loop;
  for (int i = 0; i < 3; ++i) {
    loop.fetch(10);
    loop.clock.optimizer_begin(loop.thread, loop.after(5));
    loop.backward(1000, 500);
    CHECK(loop.clock.optimizer_end(loop.thread, loop.after(7), 0));
  }
  CHECK(loop.body().phase_ns_total[kOptimizer] == 3 * 7);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("a backward pass that raises does not count; its time does") {
  Loop loop;
  loop.backward(10, 10);
  loop.step(1, 1);
  loop.clock.backward_begin(loop.thread, loop.after(10));
  CHECK_FALSE(loop.clock.backward_end(loop.thread, loop.after(500), false));
  loop.backward(10, 10);
  CHECK(loop.step(1, 1));
  CHECK(loop.body().backwards_total == 2);
  CHECK(loop.body().phase_ns_total[kBackward] == 520);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("ZeRO calls the optimizer for each group of parameters: one step") {
  Loop loop;
  for (int i = 0; i < 5; ++i) {
    loop.backward(10, 10);
    CHECK(loop.step(1, 1));
    for (int group = 1; group < 50; ++group) CHECK_FALSE(loop.step(0, 1));
  }
  CHECK(loop.body().steps_total == 5);
  CHECK(loop.body().optimizer_calls_total == 250);
}

TEST_CASE("calls that make room for the optimizer's state before the first backward pass are no steps") {
  Loop loop;
  for (uint32_t group = 0; group < 3; ++group) CHECK_FALSE(loop.step(1, 1));
  for (int i = 0; i < 5; ++i) {
    loop.backward(10, 10);
    CHECK(loop.step(1, 1));
  }
  CHECK(loop.body().steps_total == 5);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("where batches come but no backward pass is seen, each call of the optimizer is a step") {
  Loop loop;
  loop.backward(10, 10);
  CHECK(loop.step(1, 1));
  for (int i = 0; i < 5; ++i) {  // a training_step without a loss; a replayed graph
    loop.fetch(5);
    CHECK(loop.step(1, 1));
  }
}

TEST_CASE("calls that go on for ever without a backward pass are steps in the end") {
  Loop loop;
  loop.backward(10, 10);
  CHECK(loop.step(1, 1));
  for (uint32_t i = 0; i < kStaleCalls; ++i) CHECK_FALSE(loop.step(1, 1));
  CHECK(loop.step(1, 1));
  CHECK(loop.step(1, 1));
}

TEST_CASE("a training after another loses no step, and each of its steps has its time") {
  const uint8_t id[16] = {1};
  std::unique_ptr<PageWriter> page(PageWriter::create(id).value());
  Loop loop;
  loop.clock.publish_to(page.get());
  for (uint32_t training = 0; training < 3; ++training) {
    for (int i = 0; i < 4; ++i) {
      loop.fetch(5);
      loop.backward(10, 20);
      loop.step(3, 2, training);
    }
  }
  CHECK(page->body().steps_total == 12);
  CHECK(page->body().step_ns_total == 12 * 40);
  CHECK(page->body().phase_ns_total[kForward] == 12 * 10);
  CHECK(page->body().phase_ns_total[kOther] == 12 * 3);
  CHECK(loop.phases() == page->body().step_ns_total);
}

TEST_CASE("two optimizers with some steps each in turn lose none") {
  Loop loop;
  for (uint32_t turn = 0; turn < 6; ++turn) {
    for (int i = 0; i < 3; ++i) {
      loop.backward(10, 20);
      loop.step(3, 2, turn % 2);
    }
  }
  CHECK(loop.body().steps_total == 18);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("pairs of optimizers one after the other lose no step; one called twice in each iteration counts twice") {
  Loop pairs;
  for (uint32_t training = 0; training < 3; ++training) {
    for (int i = 0; i < 4; ++i) {
      for (uint32_t one : {0u, 1u}) {
        pairs.backward(10, 20);
        pairs.step(3, 2, 2 * training + one);
      }
    }
  }
  CHECK(pairs.body().steps_total == 12);
  CHECK(pairs.body().optimizers_seen == 2);

  Loop twice;  // a critic twice, an actor once
  for (int i = 0; i < 10; ++i) {
    for (uint32_t one : {0u, 1u, 1u}) {
      twice.backward(10, 20);
      twice.step(3, 2, one);
    }
  }
  CHECK(twice.body().steps_total == 20);
  CHECK(twice.phases() == twice.body().step_ns_total);
}

TEST_CASE("an optimizer that joins others late takes part in their steps") {
  Loop loop;
  for (int i = 0; i < 10; ++i) {
    loop.backward(10, 10);
    loop.step(1, 1, 0);
    if (i < 4) continue;
    loop.backward(10, 10);
    CHECK_FALSE(loop.step(1, 1, 1));
  }
  CHECK(loop.body().steps_total == 10);
}

TEST_CASE("of the threads inside a backward pass the last one to begin is waited for") {
  Loop loop;
  ThreadClock other;
  CHECK(loop.clock.waiting() == nullptr);
  loop.clock.backward_begin(loop.thread, loop.after(1));
  loop.clock.backward_begin(other, loop.after(1));
  CHECK(loop.clock.waiting() == &other);
  loop.clock.backward_end(loop.thread, loop.after(1), true);
  CHECK(loop.clock.waiting() == &other);
  loop.clock.backward_end(other, loop.after(1), true);
  CHECK(loop.clock.waiting() == nullptr);
}

TEST_CASE("an empty call after optimizers that stepped inside the backward pass is no step") {
  Loop loop;
  for (int i = 0; i < 4; ++i) {
    loop.clock.backward_begin(loop.thread, loop.after(20));
    loop.step(5, 2, 0);
    CHECK(loop.clock.backward_end(loop.thread, loop.after(5), true));
    CHECK_FALSE(loop.step(1, 1, 1));
  }
  CHECK(loop.body().steps_total == 4);
}

TEST_CASE("without a batch in the step before, what comes next is the forward pass") {
  Loop loop;
  loop.fetch(100);  // one batch for all steps, as benchmarks do
  for (int i = 0; i < 4; ++i) {
    loop.backward(30, 10);
    loop.step(0, 5);
  }
  CHECK(loop.body().phase_ns_total[kForward] == 3 * 30);  // after the first step the next batch was awaited
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("threads are armed apart") {
  Loop one;
  ThreadClock other;
  one.backward(1, 1);
  one.clock.backward_begin(other, one.after(1));
  one.clock.backward_end(other, one.after(1), true);
  one.clock.optimizer_begin(one.thread, one.after(1));
  one.clock.optimizer_begin(other, one.after(1));
  CHECK(one.clock.optimizer_end(one.thread, one.after(1), 0));
  CHECK(one.clock.optimizer_end(other, one.after(1), 1));
  CHECK(one.body().steps_total == 2);
}

TEST_CASE("optimizers inside a backward pass end the step with it") {
  Loop loop;
  for (int i = 0; i < 4; ++i) {
    loop.clock.backward_begin(loop.thread, loop.after(20));
    for (uint32_t parameter = 0; parameter < 40; ++parameter) CHECK_FALSE(loop.step(5, 2, kNoSlot));
    CHECK(loop.clock.backward_end(loop.thread, loop.after(5), true));
  }
  CHECK(loop.body().steps_total == 4);
  CHECK(loop.body().optimizer_calls_total == 160);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("only the outermost backward pass and fetch count") {
  Loop loop;
  loop.clock.data_begin(loop.thread, loop.after(1));
  loop.fetch(5);
  loop.clock.data_end(loop.thread, loop.after(1), true);
  loop.clock.backward_begin(loop.thread, loop.after(1));
  loop.backward(1, 1);
  loop.clock.backward_end(loop.thread, loop.after(1), true);
  loop.step(1, 1);
  CHECK(loop.body().batches_total == 1);
  CHECK(loop.body().backwards_total == 1);
}

TEST_CASE("without an optimizer backward passes are steps in the end, marked; the first optimizer puts that right") {
  Loop loop;
  for (uint64_t i = 0; i < kBackwardsBeforeEstimate; ++i) CHECK_FALSE(loop.backward(10, 10));
  CHECK(loop.backward(10, 10));
  CHECK(loop.body().counting == kCountBackward);
  loop.backward(10, 10);
  CHECK(loop.step(1, 1));
  CHECK(loop.body().counting == kCountOptimizer);
  CHECK_FALSE(loop.backward(10, 10));
}

TEST_CASE("from the first explicit step on nothing else counts, and no step counts twice") {
  Loop loop;
  for (int i = 0; i < 5; ++i) {
    loop.backward(10, 10);
    loop.step(1, 1);
    loop.clock.explicit_step(loop.thread, loop.after(1));
  }
  CHECK(loop.body().counting == kCountExplicit);
  CHECK(loop.body().steps_total == 5);
}

TEST_CASE("a first explicit step that the hooks cannot have counted is one") {
  Loop replays;
  replays.backward(10, 10);
  replays.step(1, 1);  // warms up
  for (int i = 0; i < 5; ++i) {
    replays.fetch(5);
    CHECK(replays.clock.explicit_step(replays.thread, replays.after(10)));
  }
  Loop gan;
  for (int i = 0; i < 5; ++i) {
    for (uint32_t one : {0u, 1u}) {
      gan.backward(10, 10);
      gan.step(1, 1, one);
    }
    CHECK(gan.clock.explicit_step(gan.thread, gan.after(1)) == (i > 0));
  }
  CHECK(gan.body().steps_total == 5);
  CHECK(gan.phases() == gan.body().step_ns_total);
}

TEST_CASE("another thread that loads while this one trains makes no data wait") {
  Loop loop;
  ThreadClock reader;
  loop.clock.set_thread(1);
  loop.backward(10, 10);
  loop.clock.data_begin(reader, loop.after(1));
  loop.clock.data_end(reader, loop.after(500), true);
  loop.step(1, 1);
  CHECK(loop.body().prefetches_total == 1);
  CHECK(loop.body().batches_total == 0);
  CHECK(loop.body().phase_ns_total[kDataWait] == 0);
}

TEST_CASE("a step is marked profiled while a capture runs in any part of it") {
  const uint8_t id[16] = {1};
  auto made = PageWriter::create(id);
  REQUIRE(made.ok());
  std::unique_ptr<PageWriter> page(made.value());
  Loop loop;
  loop.clock.publish_to(page.get());
  loop.backward(10, 10);
  loop.step(1, 1);
  loop.clock.set_capturing(true);
  loop.backward(10, 10);
  loop.clock.set_capturing(false);
  loop.step(1, 1);
  loop.backward(10, 10);
  loop.step(1, 1);
  CHECK(page->body().steps_total == 3);
  CHECK(page->body().capturing == 0);
}

TEST_CASE("a pause is no part of a step, and what follows may be another training") {
  Loop loop;
  for (uint32_t cell = 0; cell < 3; ++cell) {
    for (int i = 0; i < 2; ++i) {
      loop.fetch(5);
      loop.backward(10, 10);
      CHECK(loop.step(1, 4, cell));
    }
    loop.fetch(5);
    loop.backward(10, 10);  // given up
    loop.after(1'000'000);
    loop.clock.pause(loop.thread);
  }
  CHECK(loop.body().steps_total == 6);
  CHECK(loop.body().step_ns_total == 6 * 30);
  CHECK(loop.phases() == loop.body().step_ns_total);
}

TEST_CASE("nine names are one too many") {
  StepClock clock;
  for (char c = 'a'; c < 'a' + 8; ++c) CHECK(clock.phase_slot(&c, 1) == c - 'a');
  CHECK(clock.phase_slot("c", 1) == 2);
  CHECK(clock.phase_slot("i", 1) == -1);
  CHECK(clock.body().dropped_total == 1);
}
