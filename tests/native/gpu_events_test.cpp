// The event layer on the libcuda double.
#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <unistd.h>
#include <thread>

#include "gpu/event_layer.h"
#include "gpu_fixture.h"

using namespace pymon;

namespace {

constexpr EventOptions kFast{5'000'000};
cuda::Stream const kStream = reinterpret_cast<void*>(0x70);

void no_synchronisation() {
  for (const char* call : {"cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"}) {
    CHECK(cuda_double_calls(call) == 0);
  }
}

// One step whose GPU work takes so long in each phase.
void train_step(EventLayer* layer, uint64_t step, uint64_t forward_ns, uint64_t backward_ns, uint64_t optimizer_ns) {
  layer->mark(kStream, kDataWait, 0);
  cuda_double_work(kStream, forward_ns);
  layer->mark(kStream, kForward, 0);
  cuda_double_work(kStream, backward_ns);
  layer->mark(kStream, kBackward, 0);
  cuda_double_work(kStream, optimizer_ns);
  layer->mark(kStream, kOptimizer, step);
}

}  // namespace

TEST_CASE("GPU time of steps and phases, without one synchronisation") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  for (uint64_t step = 1; step <= 20; ++step) train_step(layer, step, 3'000'000, 6'000'000, 1'000'000);
  REQUIRE(eventually([&] { return page.gpu().steps_timed_total == 19; }));  // the first one's begin was not seen
  const GpuBody body = page.gpu();
  CHECK(body.state == kLayerRunning);
  CHECK(body.step_ns_total == doctest::Approx(190e6).epsilon(0.02));
  CHECK(body.phase_ns_total[kForward] == doctest::Approx(57e6).epsilon(0.02));
  CHECK(body.phase_ns_total[kBackward] == doctest::Approx(114e6).epsilon(0.02));
  CHECK(body.phase_ns_total[kOptimizer] == doctest::Approx(19e6).epsilon(0.05));
  CHECK(body.last_step == 20);
  CHECK(body.pending == 0);
  CHECK(body.dropped_total == 0);
  CHECK(body.failed_total == 0);
  std::vector<GpuRingEntry> steps;
  page.reader->gpu_steps_after(6, &steps);
  REQUIRE(steps.size() == 14);
  CHECK(steps[0].step == 7);
  CHECK(steps[13].step == 20);
  CHECK(steps[0].gpu_ns == doctest::Approx(10e6).epsilon(0.02));
  CHECK(steps[0].phase_ns[kBackward] == doctest::Approx(6e6).epsilon(0.02));
  no_synchronisation();
  layer->stop("test over", 500);
  CHECK(page.gpu().state == kLayerDisarmed);
  CHECK(layer->reason() == "test over");
}

TEST_CASE("what lies between marks that were left out is no step's time") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  for (uint64_t step = 1; step <= 3; ++step) train_step(layer, step, 1'000'000, 1'000'000, 1'000'000);
  layer->mark(kStream, kDataWait, 0);
  cuda_double_work(kStream, 500'000'000);  // switched off within the fourth
  std::thread([layer] { layer->leave_gap(); }).join();
  for (uint64_t step = 4; step <= 6; ++step) train_step(layer, step, 1'000'000, 1'000'000, 1'000'000);
  REQUIRE(eventually([&] { return page.gpu().last_step == 6; }));
  REQUIRE(eventually([&] { return page.gpu().steps_timed_total == 4; }));  // 2, 3, 5, 6
  CHECK(page.gpu().steps_untimed_total == 1);
  CHECK(page.gpu().step_ns_total < 100'000'000);
  layer->stop("test over", 500);
}

TEST_CASE("a GPU that lags behind by more than the ring costs the oldest events, counted, and never the training") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  layer->mark(kStream, kOther, 1);
  cuda_double_work(kStream, 1'000'000'000);  // far behind
  for (uint64_t step = 2; step <= 1000; ++step) train_step(layer, step, 1000, 1000, 1000);
  REQUIRE(eventually([&] { return page.gpu().last_step == 1000; }));
  const GpuBody body = page.gpu();
  CHECK(body.dropped_total > 2000);
  CHECK(body.steps_timed_total > 200);
  CHECK(body.steps_timed_total + body.steps_untimed_total <= 999);
  layer->stop("test over", 500);
}

TEST_CASE("nothing is recorded on a stream that is capturing a graph, and no query breaks the capture") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  const uint64_t broken = cuda_double_captures_broken();
  for (uint64_t step = 1; step <= 3; ++step) train_step(layer, step, 1000, 1000, 1000);
  cuda_double_capture(kStream, 1);
  const uint64_t recorded = cuda_double_calls("cuEventRecord");
  for (uint64_t step = 4; step <= 6; ++step) train_step(layer, step, 1000, 1000, 1000);
  CHECK(cuda_double_calls("cuEventRecord") == recorded);
  CHECK(eventually([&] { return page.gpu().skipped_capturing_total == 12; }));
  cuda_double_capture(kStream, 0);
  for (uint64_t step = 7; step <= 9; ++step) train_step(layer, step, 1000, 1000, 1000);
  CHECK(eventually([&] { return page.gpu().last_step == 9; }));
  CHECK(page.gpu().steps_timed_total == 4);  // 2, 3, 8, 9
  CHECK(cuda_double_captures_broken() == broken);
  layer->stop("test over", 500);
}

TEST_CASE("another CUDA context is left alone") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  layer->mark(kStream, kOther, 1);
  cuda_double_context(reinterpret_cast<void*>(0x2));
  layer->mark(kStream, kOther, 2);
  cuda_double_context(reinterpret_cast<void*>(0x1));
  CHECK(eventually([&] { return page.gpu().skipped_context_total == 1; }));
  CHECK(page.gpu().marks_total == 1);
  layer->stop("test over", 500);
}

TEST_CASE("a GPU that answers no more switches the layer off, not the training") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  for (uint64_t step = 1; step <= 3; ++step) train_step(layer, step, 1000, 1000, 1000);
  CHECK(eventually([&] { return page.gpu().pending == 0; }));
  cuda_double_fail("cuEventQuery", 700);
  for (uint64_t step = 4; step <= 20; ++step) train_step(layer, step, 1000, 1000, 1000);
  CHECK(eventually([&] { return page.gpu().state == kLayerDisarmed; }));
  CHECK(layer->reason() == "CUDA answers no event any more");
  layer->stop("test over", 500);
  const uint64_t recorded = cuda_double_calls("cuEventRecord");
  train_step(layer, 21, 1000, 1000, 1000);
  CHECK(cuda_double_calls("cuEventRecord") == recorded);
  cuda_double_fail("cuEventQuery", 0);
}

TEST_CASE("events that cannot be recorded leave the step untimed") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  for (uint64_t step = 1; step <= 3; ++step) train_step(layer, step, 1000, 1000, 1000);
  cuda_double_fail("cuEventRecord", 2);
  train_step(layer, 4, 1000, 1000, 1000);
  cuda_double_fail("cuEventRecord", 0);
  for (uint64_t step = 5; step <= 6; ++step) train_step(layer, step, 1000, 1000, 1000);
  CHECK(eventually([&] { return page.gpu().last_step == 6; }));
  CHECK(page.gpu().failed_total == 4);
  CHECK(page.gpu().steps_timed_total == 3);  // 2, 3, 6
  CHECK(page.gpu().steps_untimed_total == 2);
  layer->stop("test over", 500);
}

TEST_CASE("fast steps are thinned out, and those that are timed are whole") {
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  uint64_t step = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) {
    train_step(layer, ++step, 100'000, 200'000, 100'000);
    std::this_thread::sleep_for(std::chrono::microseconds(400));
  }
  CHECK(eventually([&] { return page.gpu().stride >= 4 && page.gpu().pending == 0; }));
  const GpuBody body = page.gpu();
  CHECK(body.steps_timed_total < step);
  CHECK(body.steps_untimed_total > 0);
  CHECK(body.step_ns_total >= body.steps_timed_total * 390'000);
  layer->stop("test over", 500);
}

TEST_CASE("no signal of the user's is handled on our thread") {
  static std::atomic<pthread_t> handled_on{};
  static std::atomic<bool> handled{false};
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {
    handled_on = pthread_self();
    handled = true;
  };
  sigaction(SIGUSR1, &action, &before);
  Page page;
  EventLayer* layer = kept(EventLayer::start(page.writer.get(), cuda_api(), kFast));
  // With ours blocked, only another thread that lets it through could handle it.
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK_FALSE(handled.load());
  pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
  CHECK(eventually([&] { return handled.load(); }));
  CHECK(pthread_equal(handled_on.load(), pthread_self()));
  layer->stop("test over", 500);
  sigaction(SIGUSR1, &before, nullptr);
}
