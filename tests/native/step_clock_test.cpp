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
    return clock.backward_end(thread, after(took));
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

TEST_CASE("threads are armed apart") {
  Loop one;
  ThreadClock other;
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
    CHECK(loop.clock.backward_end(loop.thread, loop.after(5)));
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
  loop.clock.backward_end(loop.thread, loop.after(1));
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

TEST_CASE("nine names are one too many") {
  StepClock clock;
  for (char c = 'a'; c < 'a' + 8; ++c) CHECK(clock.phase_slot(&c, 1) == c - 'a');
  CHECK(clock.phase_slot("c", 1) == 2);
  CHECK(clock.phase_slot("i", 1) == -1);
  CHECK(clock.body().dropped_total == 1);
}
