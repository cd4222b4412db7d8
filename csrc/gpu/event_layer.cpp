#include "gpu/event_layer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "core/clock.h"
#include "core/histogram.h"
#include "core/thread.h"

namespace pymon {
namespace {

constexpr uint64_t kWindowNs = 10'000'000'000;  // as long as the CUPTI layer's, for the same reason (self_guard.h)
constexpr int kWindowsOver = 3;
constexpr uint64_t kMostStride = 1024;
constexpr int kIdlePolls = 20;  // a second without a mark: an evaluation, or disarmed; then a tenth as many are enough
constexpr int kMostErrors = 16;  // one after the other: the context is gone, or the GPU has faulted

}  // namespace

EventLayer* EventLayer::start(PageWriter* page, const cuda::Api& cuda, const EventOptions& options) {
  auto* layer = new (std::nothrow) EventLayer(page, cuda, options);
  if (layer == nullptr) return nullptr;
  layer->enter(kLayerRunning, "running");
  pthread_t thread;
  if (!start_thread(&thread, "pymon-events", &EventLayer::run, layer)) {
    layer->enter(kLayerAbsent, "no thread could be started");
    layer->publish();
    layer->end();
    return layer;
  }
  pthread_detach(thread);
  return layer;
}

void EventLayer::mark(cuda::Stream stream, Phase ended, uint64_t step) noexcept {
  if (state() != kLayerRunning) return;
  if (leaves_gap_.load(std::memory_order_relaxed)) {
    leaves_gap_.store(false, std::memory_order_relaxed);
    gap_ = true;
  }
  const bool left_out = is_left_out(step);
  if (step != 0) open_step_ = step + 1;
  if (left_out || !can_record(stream)) {
    gap_ = true;
    return;
  }
  const uint64_t index = head_.load(std::memory_order_relaxed);
  claimed_.store(index + 1, std::memory_order_seq_cst);
  Slot& slot = slots_[index % kEvents];
  cuda::Event event = slot.event.load(std::memory_order_relaxed);
  if (event == nullptr && cuda_.cuEventCreate(&event, cuda::kEventDefault) == cuda::kSuccess) {
    slot.event.store(event, std::memory_order_relaxed);
  }
  if (event == nullptr || cuda_.cuEventRecord(event, stream) != cuda::kSuccess) {
    failed_.fetch_add(1, std::memory_order_relaxed);
    gap_ = true;
    return;
  }
  slot.what.store(step << 8 | uint64_t{ended} << 4 | (gap_ ? kGap : 0), std::memory_order_release);
  gap_ = false;
  head_.store(index + 1, std::memory_order_release);
}

// With a stride of n every nth step is timed: its own marks are recorded, and the end of the step before it.
bool EventLayer::is_left_out(uint64_t step) const noexcept {
  const uint64_t stride = stride_.load(std::memory_order_relaxed);
  if (stride <= 1) return false;
  if (step != 0) return step % stride != 0 && (step + 1) % stride != 0;
  return open_step_ % stride != 0;
}

bool EventLayer::can_record(cuda::Stream stream) noexcept {
  cuda::Context current = nullptr;
  if (cuda_.cuCtxGetCurrent(&current) != cuda::kSuccess || current == nullptr) {
    failed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  const cuda::Context known = context_.load(std::memory_order_relaxed);
  if (known == nullptr) {
    context_.store(current, std::memory_order_release);
  } else if (known != current) {
    skipped_context_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  int capturing = cuda::kCaptureNone;
  if (cuda_.cuStreamIsCapturing(stream, &capturing) != cuda::kSuccess || capturing != cuda::kCaptureNone) {
    skipped_capturing_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  return true;
}

void EventLayer::stop(const char* reason, uint32_t timeout_ms) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stop_reason_ == nullptr) stop_reason_ = reason;
  wake_.notify_all();
  wake_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return ended_; });
}

std::string EventLayer::reason() {
  std::lock_guard<std::mutex> lock(mutex_);
  return body_.reason;
}

void* EventLayer::run(void* self) noexcept {
  auto* layer = static_cast<EventLayer*>(self);
  layer->loop();
  layer->end();
  return nullptr;
}

void EventLayer::loop() noexcept {
  // A query of ours must not break the user's capture of a CUDA graph, in whatever thread.
  int mode = cuda::kCaptureModeRelaxed;
  cuda_.cuThreadExchangeStreamCaptureMode(&mode);
  window_begin_ns_ = mono_ns();
  publish();
  bool entered_context = false;
  while (wait()) {
    if (!entered_context && context() != nullptr) entered_context = cuda_.cuCtxSetCurrent(context()) == cuda::kSuccess;
    poll();
    keep_budget(mono_ns());
    publish();
    if (state() != kLayerRunning) return;
  }
  poll();  // what the GPU has reached by now
  enter(kLayerDisarmed, stop_reason_);
  publish();
}

// False: it is time to stop.
bool EventLayer::wait() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t poll_ns = options_.poll_ns * (idle_polls_ < kIdlePolls ? 1 : 10);
  wake_.wait_for(lock, std::chrono::nanoseconds(poll_ns), [this] { return stop_reason_ != nullptr; });
  return stop_reason_ == nullptr;
}

void EventLayer::poll() noexcept {
  idle_polls_ = tail_ < head_.load(std::memory_order_acquire) ? 0 : std::min(idle_polls_ + 1, kIdlePolls);
  while (tail_ < head_.load(std::memory_order_acquire)) {
    const uint64_t claimed = claimed_.load(std::memory_order_seq_cst);
    if (claimed > tail_ + kEvents) {  // the ring went round: the oldest are gone
      const uint64_t oldest = claimed - kEvents;
      body_.dropped_total += oldest - tail_;
      tail_ = oldest;
      has_previous_ = false;
    }
    if (!measure(tail_)) return;
    ++tail_;
  }
}

// False: the GPU is not there yet.
bool EventLayer::measure(uint64_t index) noexcept {
  const Slot& slot = slots_[index % kEvents];
  const cuda::Event event = slot.event.load(std::memory_order_relaxed);
  const cuda::Result answer = cuda_.cuEventQuery(event);
  if (answer == cuda::kNotReady) return false;
  const uint64_t what = slot.what.load(std::memory_order_acquire);
  float elapsed_ms = 0.0F;
  bool follows = has_previous_ && answer == cuda::kSuccess && (what & kGap) == 0;
  if (follows) {
    const cuda::Event previous = slots_[(index - 1) % kEvents].event.load(std::memory_order_relaxed);
    follows = cuda_.cuEventElapsedTime(&elapsed_ms, previous, event) == cuda::kSuccess && elapsed_ms >= 0.0F;
  }
  // Only now is it certain that both events were still those of these marks.
  const uint64_t oldest_used = follows ? index - 1 : index;
  if (claimed_.load(std::memory_order_seq_cst) > oldest_used + kEvents) {
    ++body_.dropped_total;
    has_previous_ = whole_ = false;
    return true;
  }
  errors_in_a_row_ = answer == cuda::kSuccess ? 0 : errors_in_a_row_ + 1;
  if (answer != cuda::kSuccess) {
    failed_.fetch_add(1, std::memory_order_relaxed);
    has_previous_ = whole_ = false;
    return true;
  }
  has_previous_ = true;
  add(what, static_cast<uint64_t>(static_cast<double>(elapsed_ms) * 1e6), follows);
  return true;
}

void EventLayer::add(uint64_t what, uint64_t duration_ns, bool follows) noexcept {
  const uint64_t step = what >> 8, phase = what >> 4 & 0xF;
  if (follows) {
    open_.gpu_ns += duration_ns;
    if (phase <= kOther) open_.phase_ns[phase] += duration_ns;
  } else {
    whole_ = false;
  }
  if (step != 0) end_step(step, whole_);
}

void EventLayer::end_step(uint64_t step, bool whole) noexcept {
  const bool first = last_ended_ == 0;  // its begin was not seen, so it counts for nothing
  if (!first) body_.steps_untimed_total += step - last_ended_ - whole;
  if (whole) {
    open_.step = step;
    ++body_.steps_timed_total;
    body_.step_ns_total += open_.gpu_ns;
    for (uint32_t slot = 0; slot <= kOther; ++slot) body_.phase_ns_total[slot] += open_.phase_ns[slot];
    histogram_add(body_.step_histogram, open_.gpu_ns);
    body_.last_step = step;
    body_.last_step_ns = open_.gpu_ns;
    if (page_ != nullptr) page_->push_gpu_step(open_);
  }
  last_ended_ = step;
  open_ = GpuRingEntry{};
  whole_ = true;
}

// First fewer steps are timed; only if that does not help the layer goes.
void EventLayer::keep_budget(uint64_t now_ns) noexcept {
  if (errors_in_a_row_ >= kMostErrors) {
    enter(kLayerDisarmed, "CUDA answers no event any more");
    return;
  }
  const uint64_t window_ns = now_ns - window_begin_ns_;
  const uint64_t marks = head_.load(std::memory_order_relaxed) - window_head_;
  const uint64_t stride = stride_.load(std::memory_order_relaxed);
  if (window_ns >= 1'000'000'000 && marks * 1'000'000'000 > kMarksPerSecond * window_ns && stride < kMostStride) {
    stride_.store(2 * stride, std::memory_order_relaxed);
  } else if (window_ns < kWindowNs) {
    return;
  } else if (stride > 1 && 4 * marks * 1'000'000'000 < kMarksPerSecond * window_ns) {
    stride_.store(stride / 2, std::memory_order_relaxed);
  }
  const uint64_t cpu_ns = thread_cpu_ns();
  const bool over = static_cast<double>(cpu_ns - window_cpu_ns_) > kCpuShare * static_cast<double>(window_ns);
  if (window_ns >= kWindowNs) windows_over_ = over ? windows_over_ + 1 : 0;
  window_begin_ns_ = now_ns;
  window_head_ = head_.load(std::memory_order_relaxed);
  window_cpu_ns_ = cpu_ns;
  if (windows_over_ >= kWindowsOver) enter(kLayerDisarmed, "over its budget: more than 0.5 % of a core for half a minute");
}

void EventLayer::enter(LayerState state, const char* reason) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  std::memset(body_.reason, 0, sizeof body_.reason);
  std::strncpy(body_.reason, reason, sizeof body_.reason - 1);
  state_.store(state, std::memory_order_release);
  wake_.notify_all();
}

void EventLayer::end() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  wake_.notify_all();
}

void EventLayer::publish() noexcept {
  body_.state = state_.load(std::memory_order_relaxed);
  body_.publish_mono_ns = mono_ns();
  body_.marks_total = head_.load(std::memory_order_relaxed);
  body_.pending = body_.marks_total - std::min(tail_, body_.marks_total);
  body_.skipped_capturing_total = skipped_capturing_.load(std::memory_order_relaxed);
  body_.skipped_context_total = skipped_context_.load(std::memory_order_relaxed);
  body_.failed_total = failed_.load(std::memory_order_relaxed);
  body_.stride = stride_.load(std::memory_order_relaxed);
  body_.own_cpu_ns_total = thread_cpu_ns();
  if (page_ != nullptr) page_->publish_gpu(body_);
}

}  // namespace pymon
