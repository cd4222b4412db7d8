#include "gpu/gpu_core.h"

#include <cstdlib>
#include <cstring>

#include "gpu/library.h"

namespace pymon {
namespace {

GpuCore* g_core = nullptr;

constexpr uint32_t kExitMs = 500;  // the end of a process waits no longer than this

// Before libcuda's own destructors, which were registered before ours. The CUPTI layer sees to itself.
void stop_at_exit() {
  if (g_core != nullptr) g_core->stop_events("the process ends", kExitMs);
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
  if (g_core == nullptr) g_core = new GpuCore;
  return *g_core;
}

void GpuCore::start(PageWriter* page, const GpuOptions& options) {
  if (started_) return;
  started_ = true;
  no_events_ = options.why_no_events;
  no_cupti_ = options.why_no_cupti;
  Result<cuda::Api> found = load_cuda(options.cupti.loading);
  if (!found.ok()) no_events_ = no_cupti_ = found.error().text;
  publish_absent(page, no_events_, no_cupti_);
  if (!found.ok()) return;
  cuda_ = found.value();
  if (no_events_.empty()) events_ = EventLayer::start(page, cuda_, options.events);
  if (no_cupti_.empty()) cupti_ = CuptiLayer::start(page, &cuda_, options.cupti);
  static const int once = std::atexit(&stop_at_exit);
  (void)once;
}

void GpuCore::mark(cuda::Stream stream, Phase ended, uint64_t step) noexcept {
  if (step != 0 && cupti_ != nullptr) {
    cupti_->note_step();
    cuda::Context context = nullptr;
    if (!knows_context_ && cuda_.cuCtxGetCurrent(&context) == cuda::kSuccess && context != nullptr) {
      cupti_->note_context(context);
      knows_context_ = true;
    }
  }
  if (events_ != nullptr) events_->mark(stream, ended, step);
}

bool GpuCore::yield(uint32_t timeout_ms) noexcept { return cupti_ == nullptr || cupti_->yield(timeout_ms); }

void GpuCore::resume() noexcept {
  if (cupti_ != nullptr) cupti_->resume();
}

void GpuCore::note_reserved(uint64_t bytes) noexcept {
  if (cupti_ != nullptr) cupti_->note_reserved(bytes);
}

void GpuCore::stop(const char* reason, uint32_t timeout_ms) noexcept {
  stop_events(reason, timeout_ms);
  stop_cupti(reason, timeout_ms);
}

void GpuCore::stop_events(const char* reason, uint32_t timeout_ms) noexcept {
  if (events_ != nullptr) events_->stop(reason, timeout_ms);
}

void GpuCore::stop_cupti(const char* reason, uint32_t timeout_ms) noexcept {
  if (cupti_ != nullptr) cupti_->stop(reason, timeout_ms);
}

GpuCore::Layer GpuCore::events() {
  return events_ == nullptr ? Layer{started_ ? kLayerAbsent : kLayerOff, no_events_}
                            : Layer{events_->state(), events_->reason()};
}

GpuCore::Layer GpuCore::cupti() {
  return cupti_ == nullptr ? Layer{started_ ? kLayerAbsent : kLayerOff, no_cupti_}
                           : Layer{cupti_->state(), cupti_->reason()};
}

std::string GpuCore::why_no_events() {
  const Result<cuda::Api> found = load_cuda(Loading::kMayLoad);
  return found.ok() ? std::string() : found.error().text;
}

std::string GpuCore::why_no_cupti() {
  const Result<Cupti> found = load_cupti(Loading::kMayLoad);
  return found.ok() ? std::string() : found.error().text;
}

void GpuCore::forget_in_child() noexcept {
  g_core = nullptr;  // leaked: its locks may be held by threads that are not here
  CuptiLayer::forget_in_child();
}

}  // namespace pymon
