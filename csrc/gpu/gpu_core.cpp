#include "gpu/gpu_core.h"

#include <cstdlib>
#include <cstring>

#include "gpu/library.h"

namespace pymon {
namespace {

std::atomic<GpuCore*> g_core{nullptr};

constexpr uint32_t kExitMs = 500;  // the end of a process waits no longer than this

// Before libcuda's own destructors, which were registered before ours. The CUPTI layer sees to itself.
void stop_at_exit() {
  if (GpuCore* core = g_core.load()) core->stop_events("the process ends", kExitMs);
}

// A layer that is not even started, and why.
void publish_absent(PageWriter* page, const std::string& no_events, const std::string& no_cupti) {
  if (page == nullptr) return;
  if (!no_events.empty()) {
    GpuBody body{};
    body.state = kLayerAbsent;
    std::strncpy(body.reason, no_events.c_str(), kReasonBytes - 1);
    page->publish_gpu(body);
  }
  if (!no_cupti.empty()) {
    CuptiBody body{};
    body.head.state = kLayerAbsent;
    std::strncpy(body.head.reason, no_cupti.c_str(), kReasonBytes - 1);
    page->publish_cupti(body, 0, true);
  }
}

}  // namespace

GpuCore& GpuCore::instance() noexcept {
  GpuCore* known = g_core.load();
  if (known != nullptr) return *known;
  auto* made = new GpuCore;
  if (g_core.compare_exchange_strong(known, made)) return *made;
  delete made;  // another thread was first
  return *known;
}

void GpuCore::start(PageWriter* page, const GpuOptions& options) {
  if (started_.exchange(true)) return;
  Result<cuda::Api> found = load_cuda(options.cupti.loading);
  const std::string no_events = found.ok() ? options.why_no_events : found.error().text;
  const std::string no_cupti = found.ok() ? options.why_no_cupti : found.error().text;
  {
    std::lock_guard<std::mutex> lock(why_not_mutex_);
    no_events_ = no_events;
    no_cupti_ = no_cupti;
  }
  publish_absent(page, no_events, no_cupti);
  if (!found.ok()) return;
  cuda_ = found.value();
  if (no_events.empty()) events_ = EventLayer::start(page, cuda_, options.events);
  if (no_cupti.empty()) cupti_ = CuptiLayer::start(page, &cuda_, options.cupti);
  static const int once = std::atexit(&stop_at_exit);
  (void)once;
}

void GpuCore::mark(cuda::Stream stream, Phase ended, uint64_t step) noexcept {
  CuptiLayer* cupti = cupti_.load();
  if (step != 0 && cupti != nullptr) {
    cupti->note_step();
    cuda::Context context = nullptr;
    if (!knows_context_ && cuda_.cuCtxGetCurrent(&context) == cuda::kSuccess && context != nullptr) {
      cupti->note_context(context);
      knows_context_ = true;
    }
  }
  if (EventLayer* events = events_.load()) events->mark(stream, ended, step);
}

void GpuCore::leave_gap() noexcept {
  if (EventLayer* events = events_.load()) events->leave_gap();
}

bool GpuCore::yield(uint32_t timeout_ms, const char* reason) noexcept {
  CuptiLayer* cupti = cupti_.load();
  return cupti == nullptr || cupti->yield(timeout_ms, reason);
}

void GpuCore::resume() noexcept {
  if (CuptiLayer* cupti = cupti_.load()) cupti->resume();
}

void GpuCore::note_reserved(uint64_t bytes) noexcept {
  if (CuptiLayer* cupti = cupti_.load()) cupti->note_reserved(bytes);
}

void GpuCore::stop(const char* reason, uint32_t timeout_ms) noexcept {
  stop_events(reason, timeout_ms);
  stop_cupti(reason, timeout_ms);
}

void GpuCore::stop_events(const char* reason, uint32_t timeout_ms) noexcept {
  if (EventLayer* events = events_.load()) events->stop(reason, timeout_ms);
}

void GpuCore::stop_cupti(const char* reason, uint32_t timeout_ms) noexcept {
  if (CuptiLayer* cupti = cupti_.load()) cupti->stop(reason, timeout_ms);
}

void GpuCore::leave_cupti(const char* reason) noexcept {
  if (CuptiLayer* cupti = cupti_.load()) cupti->leave(reason);
}

GpuCore::Layer GpuCore::events() {
  if (EventLayer* events = events_.load()) return {events->state(), events->reason()};
  std::lock_guard<std::mutex> lock(why_not_mutex_);
  return {started_ ? kLayerAbsent : kLayerOff, no_events_};
}

GpuCore::Layer GpuCore::cupti() {
  if (CuptiLayer* cupti = cupti_.load()) return {cupti->state(), cupti->reason()};
  std::lock_guard<std::mutex> lock(why_not_mutex_);
  return {started_ ? kLayerAbsent : kLayerOff, no_cupti_};
}

std::string GpuCore::why_no_events() {
  const Result<cuda::Api> found = load_cuda(Loading::kMayLoad);
  return found.ok() ? std::string() : found.error().text;
}

std::string GpuCore::why_no_cupti() {
  if (std::string tool = other_tool(); !tool.empty()) return tool;
  const Result<Cupti> found = load_cupti(Loading::kMayLoad);
  return found.ok() ? std::string() : found.error().text;
}

void GpuCore::forget_in_child() noexcept {
  g_core = nullptr;  // leaked: its locks may be held by threads that are not here
  CuptiLayer::forget_in_child();
}

}  // namespace pymon
