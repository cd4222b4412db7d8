// The CUPTI layer on the doubles of libcupti and Kineto; run once for each CUPTI version of test_native.py.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "doubles/cupti/cupti_double.h"
#include "gpu/cupti_layer.h"
#include "gpu_fixture.h"
#include "kineto_double.h"

using namespace pymon;

namespace {

CuptiOptions fast() {
  CuptiOptions options;
  options.synchronisations = true;
  options.flush_ns = 5'000'000;
  return options;
}

// A running layer on a fresh page, stopped at the end of the test.
struct Running {
  explicit Running(const CuptiOptions& options = fast())
      : layer(kept(CuptiLayer::start(page.writer.get(), &cuda_api(), options))) {
    CHECK(runs());
  }
  ~Running() { layer->stop("test over", 2000); }

  // The state says `running` before the first CUPTI call, the reason after the last, and the page when it is published.
  bool runs() const {
    return eventually([this] { return layer->reason() == "running" && page.cupti().head.state == kLayerRunning; });
  }
  WorkSums work(WorkClass which) const { return page.cupti().work[which]; }
  bool settles_at(uint64_t records) const {
    return eventually([&] { return page.cupti().head.records_total == records; });
  }

  Page page;
  CuptiLayer* layer;
};

bool knows_sync_records() {
  const char* version = std::getenv("DOUBLE_CUPTI_VERSION");
  return version == nullptr || std::atoi(version) >= 26;
}

}  // namespace

TEST_CASE("records become sums by class") {
  Running running;
  CHECK(running.page.cupti().head.state == kLayerRunning);
  cupti_double_play(
      "kernel nvjet_hsh_128x256 2000 0 7 300\n"
      "kernel ncclDevKernel_AllReduce_Sum_bf16_RING_LL 70000 0 9 10\n"
      "kernel vectorized_elementwise_kernel 1500 0 7 1000\n"
      "copy h2d 2048 1000 100\ncopy d2h 64 500 3\ncopy d2d 64 500 2\ncopy p2p 64 500 4\nset 32 100 10\n"
      "sync stream 12345 4\nsync event 10 1\nsync context 10 2\nsync wait 10 3");
  const uint64_t syncs = knows_sync_records() ? 10 : 0;
  REQUIRE(running.settles_at(1429 + syncs));
  CHECK(running.work(kGemm).count == 300);
  CHECK(running.work(kGemm).ns_total == 600'000);
  CHECK(running.work(kGemm).ns_max == 2000);
  CHECK(running.work(kGemm).histogram[1] == 300);  // below 2^11 ns
  CHECK(running.work(kNcclAllReduce).ns_total == 700'000);
  CHECK(running.work(kElementwise).count == 1000);
  CHECK(running.work(kCopyHostToDevice).bytes_total == 204'800);
  CHECK(running.work(kCopyDeviceToHost).count == 3);
  CHECK(running.work(kCopyDeviceToDevice).count == 2);
  CHECK(running.work(kCopyPeer).count == 4);
  CHECK(running.work(kSet).bytes_total == 320);
  if (syncs > 0) {
    CHECK(running.work(kSyncOfStream).ns_total == 49'380);
    CHECK(running.work(kSyncOfContext).count == 2);
    CHECK(running.work(kStreamWait).count == 3);
  }
  // Busy time is held back for a second.
  const uint64_t busy_ns = 600'000 + 700'000 + 1'500'000 + 100'000 + 1500 + 1000 + 2000 + 1000;
  CHECK(eventually([&] { return running.page.cupti().head.busy_ns_total == busy_ns; }));
  const CuptiHead head = running.page.cupti().head;
  CHECK(head.nccl_busy_ns_total == 700'000);
  CHECK(head.nccl_exposed_ns_total == 700'000);
  CHECK(head.unknown_total + head.zero_times_total + head.bad_times_total + head.dropped_total == 0);
  CHECK(head.host_bytes <= 32u << 20);
  CHECK(std::string(head.reason) == "running");
}

TEST_CASE("what pymon must never call is never called") {
  {
    Running running;
    cupti_double_play("kernel gemm 2000 0 7 10");
    REQUIRE(running.settles_at(10));
    REQUIRE(running.layer->yield(1000));
    running.layer->resume();
    REQUIRE(running.runs());
  }
  CHECK(cupti_double_calls("cuptiFinalize") == 0);
  CHECK(cupti_double_calls("cuptiActivityRegisterTimestampCallback") == 0);
  CHECK(cupti_double_calls("cuptiSubscribe") == 0);
}

TEST_CASE("records of every size of this CUPTI version are walked, over several buffers") {
  Running running;
  cupti_double_play("kernel gemm_a 2000 0 7 9000\ncopy d2h 10 5 7\nset 10 5 7");
  REQUIRE(running.settles_at(9014));
  CHECK(running.work(kGemm).count == 9000);
  CHECK(running.page.cupti().head.unknown_total == 0);
  CHECK(running.page.cupti().head.buffers_total >= 2);
}

TEST_CASE("a graph counts as one launch") {
  Running running;
  cupti_double_play("graph gemm_a 2000 100 7 50\ngraph gemm_a 2000 100 7 50\nkernel gemm_a 2000 100 7 5");
  REQUIRE(running.settles_at(105));
  const CuptiHead head = running.page.cupti().head;
  CHECK(head.kernels_total == 105);
  CHECK(head.graph_kernels_total == 100);
  CHECK(head.launches_total == 7);
}

TEST_CASE("overlapping launches of graphs are one each") {
  Running running;
  cupti_double_play("graph gemm_a 2000 100 7 3\ngraph gemm_a 2000 100 7 3");
  cupti_double_play("mixed gemm_a 2000 7 9 40");  // two launches whose kernels come in turns
  REQUIRE(running.settles_at(6 + 80));
  CHECK(running.page.cupti().head.launches_total == 2 + 2);
}

TEST_CASE("a device of any number has its busy time, and more than eight of them are counted") {
  Running running;
  const auto busy_on = [&](const char* devices) {
    cupti_double_play(devices);
    running.layer->yield(1000);  // sums up what is held back
    running.layer->resume();
    REQUIRE(running.runs());
    return running.page.cupti().head;
  };
  CHECK(busy_on("device 12\nkernel gemm_a 2000 0 7 1").busy_ns_total == 2000);
  CHECK(busy_on("device 12\nkernel gemm_a 2000 0 7 1\ndevice 0\nkernel gemm_a 2000 0 7 1").busy_ns_total == 6000);
  std::string many;
  for (int device = 0; device < 16; ++device) many += "device " + std::to_string(device) + "\nkernel gemm_a 1000 0 7 1\n";
  const CuptiHead head = busy_on(many.c_str());
  CHECK(head.devices == 16);
  CHECK(head.busy_ns_total == 6000 + 8 * 1000);
  cupti_double_play("device 0");
}

TEST_CASE("a running kernel is not taken from under the GPU by the periodic flush") {
  Running running;
  const uint64_t flushes = running.page.cupti().head.flushes_total;
  cupti_double_play("open gemm_long\nkernel gemm_a 2000 0 7 10");
  REQUIRE(eventually([&] { return running.page.cupti().head.flushes_total >= flushes + 5; }));
  CHECK(running.page.cupti().head.records_total == 0);
  CHECK(running.page.cupti().head.buffers_out == 1);
  cupti_double_play("close");
  REQUIRE(running.settles_at(11));
  CHECK(running.page.cupti().head.zero_times_total == 0);
}

TEST_CASE("what is lost or useless is counted and never summed") {
  Running running;
  cupti_double_play("drop 42\nzero gemm_a 3\nbad gemm_a 2\nkernel gemm_a 2000 0 7 5");
  REQUIRE(running.settles_at(10));
  CHECK(eventually([&] { return running.page.cupti().head.dropped_total == 42; }));
  CHECK(running.page.cupti().head.zero_times_total == 3);
  CHECK(running.page.cupti().head.bad_times_total == 2);
  CHECK(running.work(kGemm).count == 5);
}

TEST_CASE("a name's address that is used again after a module was unloaded") {
  Running running;
  cupti_double_play("kernel gemm_to_be_unloaded_later_on 2000 0 7 5");
  REQUIRE(running.settles_at(5));
  REQUIRE(running.layer->yield(1000));  // or the double would write where the layer reads
  cupti_double_rename("gemm_to_be_unloaded_later_on", "ncclDevKernel_SendRecv");
  running.layer->resume();
  REQUIRE(running.runs());
  cupti_double_play("kernel gemm_to_be_unloaded_later_on 2000 0 7 5");
  REQUIRE(running.settles_at(10));
  CHECK(running.work(kNcclSendRecv).count == 5);
  CHECK(running.page.cupti().head.names_changed_total == 1);
}

TEST_CASE("hand-over: Kineto loses nothing, and neither do we") {
  Running running;
  kineto_double::records = kineto_double::unknown_buffers = 0;
  cupti_double_play("kernel gemm_a 2000 0 7 50");
  REQUIRE(running.layer->yield(1000));
  CHECK(cupti_double_enabled_kinds() == 0);
  CHECK(running.layer->state() == kLayerYielded);
  kineto_double::start(false);
  CHECK_FALSE(kineto_double::cpu_only);
  cupti_double_play("kernel gemm_b 2000 0 7 1000");
  kineto_double::stop();
  CHECK(kineto_double::records == 1000);
  CHECK(kineto_double::unknown_buffers == 0);
  running.layer->resume();
  CHECK(running.runs());
  cupti_double_play("kernel gemm_a 2000 0 7 25");
  REQUIRE(running.settles_at(75));
  const CuptiHead head = running.page.cupti().head;
  CHECK(head.handovers_total == 1);
  CHECK(head.buffers_lost_total == 0);  // the first test to lend any
  CHECK(head.yielded_ns_total > 0);
}

// A trainer's other client, while the layer's thread is stuck in CUPTI: nothing of ours is done to it any more.
static void capture_by_kineto_after(Running& running) {
  kineto_double::records = kineto_double::unknown_buffers = 0;
  const uint64_t registered = cupti_double_calls("cuptiActivityRegisterCallbacks");
  kineto_double::start(false);
  cupti_double_play("kernel gemm_b 2000 0 7 500");
  REQUIRE(eventually([&] { return running.layer->state() == kLayerYielded; }));  // the thread has come back
  cupti_double_play("kernel gemm_b 2000 0 7 500");
  CHECK(cupti_double_enabled_kinds() >= 4);  // Kineto's, and what was left of ours
  CHECK(cupti_double_calls("cuptiActivityRegisterCallbacks") == registered + 1);  // Kineto's
  kineto_double::stop();
  CHECK(kineto_double::records == 1000);
  CHECK(kineto_double::unknown_buffers == 0);
  running.layer->resume();
  CHECK(running.runs());
}

TEST_CASE("hand-over that CUPTI is too slow for: whoever went on without us is left alone, and we come back after it") {
  Running running;
  cupti_double_play("kernel gemm_a 2000 0 7 50");
  REQUIRE(running.settles_at(50));
  cupti_double_slow("cuptiActivityFlushAll", 1500);
  const uint64_t flushes = cupti_double_calls("cuptiActivityFlushAll");
  REQUIRE(eventually([&] { return cupti_double_calls("cuptiActivityFlushAll") > flushes; }));
  cupti_double_slow("cuptiActivityFlushAll", 0);
  CHECK_FALSE(running.layer->yield(20));
  capture_by_kineto_after(running);
  cupti_double_play("kernel gemm_a 2000 0 7 25");
  REQUIRE(running.settles_at(75));
}

TEST_CASE("likewise where CUPTI gets stuck in the hand-over itself") {
  CuptiOptions options = fast();
  options.flush_ns = 3'600'000'000'000;  // only the hand-over flushes
  Running running(options);
  cupti_double_slow("cuptiActivityFlushAll", 1500);
  CHECK_FALSE(running.layer->yield(200));
  cupti_double_slow("cuptiActivityFlushAll", 0);
  capture_by_kineto_after(running);
}

TEST_CASE("hand-over in the middle of a kernel: it is handed out without an end, and the buffer comes home") {
  Running running;
  cupti_double_play("kernel gemm_a 2000 0 7 50\nopen gemm_long");
  REQUIRE(running.layer->yield(1000));
  CHECK(BufferPool::instance().counts().out == 0);
  CHECK(running.settles_at(51));
  CHECK(running.page.cupti().head.zero_times_total == 1);
  running.layer->resume();
}

TEST_CASE("without the hand-over both are blind, and Kineto loses its records") {
  Running running;
  kineto_double::records = kineto_double::unknown_buffers = 0;
  cupti_double_play("open gemm_long\nkernel gemm_a 2000 0 7 100");  // our buffer is out and stays out
  kineto_double::start(false);
  cupti_double_play("kernel gemm_b 2000 0 7 1000");  // all into the buffer that is ours
  kineto_double::stop();
  CHECK(kineto_double::unknown_buffers == 1);
  CHECK(kineto_double::records == 0);
  const uint64_t flushes = running.page.cupti().head.flushes_total;
  cupti_double_play("kernel gemm_a 2000 0 7 25");
  REQUIRE(eventually([&] { return running.page.cupti().head.flushes_total >= flushes + 5; }));
  CHECK(running.page.cupti().head.records_total == 0);  // its stop switched our kinds off, and our buffer went to it
}

TEST_CASE("another client's buffer that comes back through our callback is left alone") {
  Running running;
  REQUIRE(running.layer->yield(1000));  // nothing of our own comes back meanwhile
  const CuptiHead before = running.page.cupti().head;
  auto* small = static_cast<uint8_t*>(std::calloc(1, 4096));
  BufferPool::on_completed(nullptr, 0, small, 4096, 0);
  REQUIRE(eventually([&] { return running.page.cupti().head.publish_mono_ns > before.publish_mono_ns + 20'000'000; }));
  CHECK(running.page.cupti().head.buffers_total == before.buffers_total);
  running.layer->resume();
  REQUIRE(running.runs());
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  REQUIRE(running.settles_at(10));
  std::free(small);  // and so it is still its owner's to free
}

TEST_CASE("a buffer that was given up and comes back all the same is lent again, and memory counts it once") {
  BufferPool& pool = BufferPool::instance();
  pool.begin(true);
  const BufferPool::Counts before = pool.counts();
  uint8_t* buffer = nullptr;
  size_t bytes = 0, most = 0;
  BufferPool::on_requested(&buffer, &bytes, &most);
  REQUIRE(buffer != nullptr);
  pool.give_up_lent();
  CHECK(pool.counts().lost == before.lost + 1);
  CHECK(pool.counts().made == before.made - 1);
  BufferPool::on_completed(nullptr, 0, buffer, bytes, 0);
  BufferPool::on_completed(nullptr, 0, buffer, bytes, 0);  // once is enough
  CHECK(pool.counts().made == before.made);
  CHECK(pool.counts().ever_made == before.ever_made);
  CHECK(pool.take_done().buffer == buffer);
  CHECK(pool.take_done().buffer == nullptr);
  pool.put_back(buffer);
}

TEST_CASE("yields nest: two sessions, and CUPTI comes back after the second's end") {
  Running running;
  REQUIRE(running.layer->yield(1000));
  REQUIRE(running.layer->yield(1000));
  running.layer->resume();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(running.layer->state() == kLayerYielded);
  running.layer->resume();
  CHECK(running.runs());
}

TEST_CASE("many short leases in a row escape no budget") {
  CuptiOptions options = fast();
  options.budget.window_ns = 60'000'000;
  options.flush_ns = 100'000;  // ten thousand flushes a second are more than half a percent of a core
  Running running(options);
  REQUIRE(eventually([&] {
    cupti_double_play("kernel gemm_a 2000 0 7 2000");
    running.layer->yield(1000);
    running.layer->resume();
    return running.layer->state() == kLayerDisarmed;
  }));
  CHECK(running.layer->reason().find("0.5 % of a core") != std::string::npos);
}

namespace {

CuptiOptions soon_silent(bool expects_kineto) {
  CuptiOptions options = fast();
  options.silence_ns = 100'000'000;
  options.kineto_silence_ns = 200'000'000;
  options.expects_kineto = expects_kineto;
  return options;
}

// Another client that registers itself without ticks, so that nothing gives it away.
bool is_armed_again_after_steps(Running& running) {
  return eventually([&] {
    running.layer->note_step();
    return cupti_double_enabled_kinds() > 1 || running.layer->state() == kLayerDisarmed;
  });
}

}  // namespace

TEST_CASE("with Kineto's daemon mode a capture that came and went unseen is found by the silence after it") {
  Running running(soon_silent(true));
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  REQUIRE(running.settles_at(10));
  kineto_double::start(false);
  kineto_double::stop();
  CHECK(cupti_double_enabled_kinds() == 1);  // of ours the one that Kineto does not use
  REQUIRE(is_armed_again_after_steps(running));
  REQUIRE(running.runs());
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  CHECK(running.settles_at(20));
  CHECK(running.page.cupti().head.stolen_total == 1);
}

TEST_CASE("three such in a row, and the layer stays off") {
  Running running(soon_silent(true));
  for (uint64_t capture = 1; capture <= 3; ++capture) {
    const uint64_t records = running.page.cupti().head.records_total;
    cupti_double_play("kernel gemm_a 2000 0 7 10");
    REQUIRE(running.settles_at(records + 10));
    kineto_double::start(false);
    kineto_double::stop();
    REQUIRE(is_armed_again_after_steps(running));
  }
  CHECK(running.layer->state() == kLayerDisarmed);
  CHECK(running.layer->reason() == "another CUPTI client keeps taking over");
}

TEST_CASE("a client that stays is never robbed: the layer says what it sees, and goes on when records come back") {
  Running running(soon_silent(false));
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  REQUIRE(running.settles_at(10));
  kineto_double::records = kineto_double::unknown_buffers = 0;
  const uint64_t registered = cupti_double_calls("cuptiActivityRegisterCallbacks");
  kineto_double::start(false);
  REQUIRE(eventually([&] {
    running.layer->note_step();
    return running.layer->reason().find("stay away") != std::string::npos;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  cupti_double_play("kernel gemm_b 2000 0 7 1000");
  CHECK(cupti_double_calls("cuptiActivityRegisterCallbacks") == registered + 1);  // its own
  kineto_double::stop();
  CHECK(kineto_double::records == 1000);
  REQUIRE(running.layer->yield(1000));  // whoever it was, a session that is told of puts things right
  running.layer->resume();
  REQUIRE(running.runs());
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  CHECK(running.settles_at(20));
  CHECK(running.layer->reason() == "running");
}

TEST_CASE("left to a client that has taken CUPTI already, nothing of its is touched") {
  Running running;
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  REQUIRE(running.settles_at(10));
  kineto_double::records = kineto_double::unknown_buffers = 0;
  kineto_double::start(false);
  cupti_double_play("kernel gemm_b 2000 0 7 100");
  running.layer->leave("another has it");
  REQUIRE(eventually([&] { return running.layer->state() == kLayerDisarmed; }));
  CHECK(running.layer->reason() == "another has it");
  cupti_double_play("kernel gemm_b 2000 0 7 1000");
  kineto_double::stop();
  CHECK(kineto_double::records == 1100);
}

TEST_CASE("a capture that nobody told us of is noticed, left alone, and the lease taken back after it") {
  CuptiOptions options = fast();
  options.stolen_hold_ns = 300'000'000;
  Running running(options);
  cupti_double_tick(kineto_double::kTicksPerNs);
  cupti_double_play("kernel gemm_a 2000 0 7 10");
  REQUIRE(running.settles_at(10));
  kineto_double::records = kineto_double::unknown_buffers = 0;
  kineto_double::start(true);  // the record clock turns into ticks: that gives it away
  REQUIRE(eventually([&] { return running.layer->state() == kLayerYielded; }));
  CHECK(running.layer->reason().find("took over") != std::string::npos);
  const uint64_t registered = cupti_double_calls("cuptiActivityRegisterCallbacks");
  cupti_double_play("kernel gemm_b 2000 0 7 1000");
  CHECK(cupti_double_calls("cuptiActivityRegisterCallbacks") == registered);
  kineto_double::stop();
  CHECK(kineto_double::records == 1000);
  REQUIRE(running.runs());
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // for a slope
  cupti_double_play("kernel gemm_a 2000000 0 7 100");
  REQUIRE(running.settles_at(110));
  const CuptiBody body = running.page.cupti();
  CHECK(body.head.stolen_total == 1);
  CHECK(body.head.ticks == 1);
  CHECK(body.head.bad_times_total == 0);
  // Durations are nanoseconds all the same.
  CHECK(body.work[kGemm].ns_total == doctest::Approx(10 * 2000 + 100 * 2e6).epsilon(0.005));
}

TEST_CASE("several captures: the clock stays calibrated, the head records in the old clock are taken as they are") {
  Running running;
  cupti_double_tick(kineto_double::kTicksPerNs);
  for (int capture = 0; capture < 3; ++capture) {
    REQUIRE(running.layer->yield(1000));
    kineto_double::start(true);
    cupti_double_play("kernel gemm_b 2000 0 7 50");
    kineto_double::stop();
    running.layer->resume();
    REQUIRE(running.runs());
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    cupti_double_play("kernel gemm_a 2000000 0 7 100");
    REQUIRE(running.settles_at(100 * (capture + 1)));
  }
  const CuptiBody body = running.page.cupti();
  CHECK(body.head.bad_times_total == 0);
  CHECK(body.head.handovers_total == 3);
  CHECK(body.work[kGemm].ns_total == doctest::Approx(300 * 2e6).epsilon(0.005));
}

TEST_CASE("the end of the process leaves nothing enabled and delivers what was out") {
  Page page;
  CuptiLayer* layer =
      kept(CuptiLayer::start(page.writer.get(), &cuda_api(), fast()));
  REQUIRE(eventually([&] { return layer->reason() == "running"; }));
  cupti_double_play("kernel gemm_a 2000 0 7 5");
  layer->stop("the process ends", 2000);
  CHECK(cupti_double_enabled_kinds() == 0);
  CHECK(page.cupti().head.records_total == 5);
  CHECK(page.cupti().head.state == kLayerDisarmed);
  CHECK(std::string(page.cupti().head.reason) == "the process ends");
  CHECK(layer->yield(100));  // a profiler that starts now is not kept waiting
  layer->resume();
}

TEST_CASE("device buffers that CUPTI never recycles switch the layer off, and it says so") {
  CuptiOptions options = fast();
  options.budget.window_ns = 100'000'000;
  options.budget.cpu_share = 1;  // sanitizers are slow
  options.budget.device_bytes = uint64_t{16} << 20;
  Running running(options);
  running.layer->note_context(reinterpret_cast<void*>(0x1));
  running.layer->note_reserved(0);
  uint64_t free_bytes = uint64_t{64} << 30;
  cuda_double_free_bytes(free_bytes);
  const bool disarmed = eventually([&] {
    cupti_double_play("kernel gemm_a 2000 0 7 5000");
    cuda_double_free_bytes(free_bytes -= 160'000);  // 32 bytes a record, as in its documented buffers
    running.layer->note_reserved(0);
    return running.layer->state() == kLayerDisarmed;
  });
  REQUIRE(disarmed);
  CHECK(running.layer->reason().find("64 MiB of GPU memory") != std::string::npos);
  CHECK(cupti_double_enabled_kinds() == 0);
  running.layer->stop("test over", 2000);
  CHECK(running.page.cupti().head.device_bytes > uint64_t{16} << 20);
  CHECK(std::string(running.page.cupti().head.reason).find("64 MiB") != std::string::npos);
  cuda_double_free_bytes(uint64_t{64} << 30);
}

TEST_CASE("records without times for want of device memory switch the layer off") {
  CuptiOptions options = fast();
  options.budget.window_ns = 50'000'000;
  options.budget.cpu_share = 1;
  Running running(options);
  REQUIRE(eventually([&] {
    cupti_double_play("zero gemm_a 500\nkernel gemm_a 2000 0 7 2000");
    return running.layer->state() == kLayerDisarmed;
  }));
  CHECK(running.layer->reason().find("no usable times") != std::string::npos);
}

TEST_CASE("a layer over its processor budget switches itself off, and the training's profiler still finds CUPTI free") {
  CuptiOptions options = fast();
  options.budget.window_ns = 50'000'000;
  options.flush_ns = 100'000;  // ten thousand flushes a second are more than half a percent of a core
  Running running(options);
  REQUIRE(eventually([&] {
    cupti_double_play("kernel gemm_a 2000 0 7 2000");
    return running.layer->state() == kLayerDisarmed;
  }));
  CHECK(running.layer->reason().find("0.5 % of a core") != std::string::npos);
  kineto_double::records = 0;
  CHECK(running.layer->yield(1000));
  kineto_double::start(false);
  cupti_double_play("kernel gemm_b 2000 0 7 100");
  kineto_double::stop();
  CHECK(kineto_double::records == 100);
}

TEST_CASE("hammered by threads that launch, profile and look") {
  Running running;
  const uint64_t written_before = cupti_double_records();
  const uint64_t lost_before = BufferPool::instance().counts().lost;  // of all tests before this one
  std::atomic<bool> stop{false};
  std::thread profiler([&] {
    while (!stop) {
      running.layer->yield(1000);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      running.layer->resume();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::thread reader([&] {
    while (!stop) {
      const CuptiBody body = running.page.cupti();
      uint64_t sum = 0;
      for (const WorkSums& work : body.work) sum += work.count;
      CHECK(sum + body.head.zero_times_total + body.head.bad_times_total == body.head.records_total);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::thread launchers[3];
  for (std::thread& launcher : launchers) {
    launcher = std::thread([] {
      cupti_double_play("rate 20000\nkernel gemm_a 2000 0 7 6000\ncopy h2d 10 10 600\nkernel nccl_b 2000 0 9 3000");
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  stop = true;
  profiler.join();
  reader.join();
  // Every record that CUPTI wrote has come to us, whatever went on.
  CHECK(cupti_double_records() > written_before);
  CHECK(running.settles_at(cupti_double_records() - written_before));
  CHECK(BufferPool::instance().counts().lost == lost_before);
}
