// The GPU layers of this process behind one door. What loads it (csrc/bind, csrc/inject) needs nothing else of csrc/gpu.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/layout.h"
#include "core/page_writer.h"
#include "gpu/cupti_layer.h"
#include "gpu/event_layer.h"

namespace pymon {

struct GpuOptions {
  EventOptions events;
  CuptiOptions cupti;
  std::string why_no_events, why_no_cupti;  // empty: the layer is wanted
};

class GpuCore {
 public:
  // One in a process; never destroyed.
  static GpuCore& instance() noexcept;

  // Starts both layers, once CUDA is up in this process. What cannot run says why in the page. Nothing the second time.
  void start(PageWriter* page, const GpuOptions& options);

  // See EventLayer::mark and CuptiLayer; nothing where the layer does not run.
  void mark(cuda::Stream stream, Phase ended, uint64_t step) noexcept;
  void leave_gap() noexcept;
  bool yield(uint32_t timeout_ms, const char* reason) noexcept;
  void resume() noexcept;
  void note_reserved(uint64_t bytes) noexcept;

  // Off for good, both or one of them; `reason` must live as long as the program.
  void stop(const char* reason, uint32_t timeout_ms) noexcept;
  void stop_events(const char* reason, uint32_t timeout_ms) noexcept;
  void stop_cupti(const char* reason, uint32_t timeout_ms) noexcept;
  void leave_cupti(const char* reason) noexcept;

  struct Layer {
    LayerState state;
    std::string reason;
  };
  Layer events();
  Layer cupti();

  // What would keep each layer off here, without starting anything and without a CUDA or CUPTI call where there is no
  // driver; empty where nothing would. May load libcuda.
  static std::string why_no_events();
  static std::string why_no_cupti();

  // In a fork's child: its threads are gone, and CUDA cannot be used there.
  static void forget_in_child() noexcept;

 private:
  cuda::Api cuda_;
  // Set by the thread that starts them, read by all others.
  std::atomic<EventLayer*> events_{nullptr};
  std::atomic<CuptiLayer*> cupti_{nullptr};
  std::atomic<bool> started_{false};
  bool knows_context_ = false;  // of the thread that marks
  std::mutex why_not_mutex_;
  std::string no_events_ = "not started: no CUDA in this process yet", no_cupti_ = no_events_;
};

}  // namespace pymon
