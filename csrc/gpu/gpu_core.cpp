#include "gpu/gpu_core.h"

#include <cstdlib>
#include <cstring>

#include "gpu/library.h"

namespace pymon {
namespace {

GpuCore* g_core = nullptr;

constexpr uint32_t kExitMs = 500;  // the end of a process waits no longer than this

// Before CUDA's and CUPTI's own destructors, which were registered before ours.
void stop_at_exit() {
  if (g_core != nullptr) g_core->stop("the process ends", kExitMs);
}

void publish_absent(PageWriter* page, const std::string& reason, bool events, bool cupti) {
  if (page == nullptr) return;
  const auto copy = [&reason](char (&text)[kReasonBytes]) { std::strncpy(text, reason.c_str(), kReasonBytes - 1); };
  if (events) {
    GpuBody body{};
    body.state = kLayerAbsent;
    copy(body.reason);
    page->publish_gpu(body);
  }
  if (cupti) {
    CuptiBody body{};
    body.head.state = kLayerAbsent;
    copy(body.head.reason);
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
  Result<cuda::Api> found = load_cuda(options.cupti.loading);
  if (!found.ok()) {
    why_not_ = found.error().text;
    publish_absent(page, why_not_, true, true);
    return;
  }
  cuda_ = found.value();
  why_not_ = "switched off by configuration";
  publish_absent(page, why_not_, !options.with_events, !options.with_cupti);
  if (options.with_events) events_ = EventLayer::start(page, cuda_, options.events);
  if (options.with_cupti) cupti_ = CuptiLayer::start(page, &cuda_, options.cupti);
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
  return events_ == nullptr ? Layer{started_ ? kLayerAbsent : kLayerOff, why_not_}
                            : Layer{events_->state(), events_->reason()};
}

GpuCore::Layer GpuCore::cupti() {
  return cupti_ == nullptr ? Layer{started_ ? kLayerAbsent : kLayerOff, why_not_}
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
}

}  // namespace pymon
