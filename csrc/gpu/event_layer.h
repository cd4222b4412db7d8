// GPU time by CUDA events: the training thread records one on torch's current stream where a phase or a step ends, and a
// thread of ours asks later whether the GPU got there. Nothing ever waits for the GPU.
//
// Between the two lies a ring of a fixed number of events. The training thread never waits for the poller either: where
// the GPU is more than a ring behind, the oldest event is recorded anew and counted as dropped. `claimed_` runs ahead of
// `head_`, so that the poller can tell after its calls that neither event was taken from under it: `what` is written
// after `claimed_` (release) and read before it (acquire).
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/layout.h"
#include "core/page_writer.h"
#include "gpu/cuda_abi.h"

namespace pymon {

struct EventOptions {
  uint64_t poll_ns = 50'000'000;
};

class EventLayer {
 public:
  static constexpr uint64_t kEvents = 1024;
  // What the poller asks of the driver each second, at some microseconds a mark, stays below 0.5 % of a core.
  static constexpr uint64_t kMarksPerSecond = 1000;
  static constexpr double kCpuShare = 0.005;  // design: the layer's budget

  // Starts the poller; lives as long as the process.
  static EventLayer* start(PageWriter* page, const cuda::Api& cuda, const EventOptions& options);

  // `ended` ends here, and with it step `step` where that is not 0. Calls come one at a time, from a thread that has the
  // CUDA context of `stream` current. Microseconds; never waits, never fails.
  void mark(cuda::Stream stream, Phase ended, uint64_t step) noexcept;

  // Marks were left out, as by a budget: what the next one ends was not watched from its begin. From any thread.
  void leave_gap() noexcept { leaves_gap_.store(true, std::memory_order_relaxed); }

  // Off for good; `reason` must live as long as the program. Waits at most `timeout_ms` for the poller.
  void stop(const char* reason, uint32_t timeout_ms) noexcept;

  LayerState state() const noexcept { return static_cast<LayerState>(state_.load(std::memory_order_acquire)); }
  std::string reason();
  cuda::Context context() const noexcept { return context_.load(std::memory_order_acquire); }

 private:
  static constexpr uint64_t kGap = 1;  // of `what`: marks before this one were left out

  struct Slot {
    std::atomic<cuda::Event> event{nullptr};
    std::atomic<uint64_t> what{0};  // step << 8 | phase << 4 | kGap
  };

  EventLayer(PageWriter* page, const cuda::Api& cuda, const EventOptions& options) noexcept
      : page_(page), cuda_(cuda), options_(options) {}

  bool is_left_out(uint64_t step) const noexcept;
  bool can_record(cuda::Stream stream) noexcept;
  static void* run(void* self) noexcept;
  void loop() noexcept;
  bool wait() noexcept;
  void poll() noexcept;
  bool measure(uint64_t index) noexcept;
  void add(uint64_t what, uint64_t duration_ns, bool follows) noexcept;
  void end_step(uint64_t step, bool whole) noexcept;
  void keep_budget(uint64_t now_ns) noexcept;
  void enter(LayerState state, const char* reason) noexcept;
  void publish() noexcept;
  void end() noexcept;

  PageWriter* page_;
  cuda::Api cuda_;
  EventOptions options_;
  Slot slots_[kEvents];
  std::atomic<uint64_t> head_{0}, claimed_{0};
  std::atomic<uint64_t> state_{kLayerOff}, stride_{1};
  std::atomic<uint64_t> skipped_capturing_{0}, skipped_context_{0}, failed_{0};
  std::atomic<cuda::Context> context_{nullptr};
  std::atomic<bool> leaves_gap_{false};
  bool gap_ = true;          // the training thread's own
  uint64_t open_step_ = 0;   // likewise; 0 until a step ended

  std::mutex mutex_;
  std::condition_variable wake_;
  const char* stop_reason_ = nullptr;
  bool ended_ = false;  // the thread will not touch the page again

  // The poller's own.
  GpuBody body_{};
  GpuRingEntry open_{};
  uint64_t tail_ = 0;
  uint64_t last_ended_ = 0;       // step
  bool has_previous_ = false;     // the event before `tail_` can be measured from
  bool whole_ = false;            // all marks of the open step so far are there
  uint64_t window_begin_ns_ = 0, window_head_ = 0, window_cpu_ns_ = 0;
  int windows_over_ = 0;
  int errors_in_a_row_ = 0;
  int idle_polls_ = 0;  // in a row that found nothing to ask for
};

}  // namespace pymon
