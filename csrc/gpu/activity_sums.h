// CUPTI's records -> the sums of the page's CUPTI section. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/layout.h"
#include "gpu/cupti_abi.h"
#include "gpu/name_cache.h"
#include "gpu/record_clock.h"
#include "gpu/timeline.h"

namespace pymon {

class ActivitySums {
 public:
  // Devices whose busy time is summed, the first ones seen; a process with more is rare (nn.DataParallel), and `devices`,
  // which counts all, says so.
  static constexpr uint32_t kDevices = 8;

  // False: no memory.
  bool allocate() noexcept;

  // All records of a buffer that CUPTI gave back.
  void add_buffer(const cupti::Api& cupti, uint8_t* buffer, size_t valid_bytes) noexcept;

  // Sums up busy time of all that began before `until_ns` (CLOCK_REALTIME).
  void settle(uint64_t until_ns) noexcept;

  // Records end here for a while: another client has CUPTI.
  void interrupt() noexcept;

  RecordClock& clock() noexcept { return clock_; }
  CuptiBody& body() noexcept { return body_; }
  const NameCache& names() const noexcept { return names_; }

  // The classes that changed since the last call, a bit each.
  uint32_t take_changed() noexcept { return __builtin_expect(changed_ == 0, 0) ? 0 : exchange_changed(); }

  // Memory held besides the buffers.
  size_t bytes() const noexcept;

 private:
  uint32_t exchange_changed() noexcept {
    const uint32_t changed = changed_;
    changed_ = 0;
    return changed;
  }
  void add_kernel(const cupti::Kernel& kernel) noexcept;
  void add_copy(WorkClass work, uint64_t start, uint64_t end, uint64_t bytes, uint32_t device, uint32_t stream) noexcept;
  void add_sync(const cupti::Synchronization& sync) noexcept;
  void add_work(WorkClass work, uint64_t duration_ns, uint64_t bytes) noexcept;
  void add_times(uint64_t begin_ns, uint64_t end_ns) noexcept;
  bool plausible(const RecordClock::Span& span, uint64_t start, uint64_t end) noexcept;
  Timeline* timeline_of(uint32_t device) noexcept {
    return __builtin_expect(device == last_device_, 1) ? last_timeline_ : find_timeline(device);
  }
  Timeline* find_timeline(uint32_t device) noexcept;
  bool begins_launch(uint32_t correlation) noexcept;

  CuptiBody body_{};
  uint32_t changed_ = 0;
  // The launches of CUDA graphs under way: their kernels come mixed where streams overlap. By correlation, which counts up
  // by one or more with each call, so only ones that lie a multiple of this apart meet.
  static constexpr uint32_t kGraphLaunches = 64;
  uint32_t graph_launches_[kGraphLaunches] = {};
  NameCache names_;
  RecordClock clock_;
  std::unique_ptr<Timeline> timelines_[kDevices];
  uint32_t timeline_devices_[kDevices] = {};
  uint64_t devices_seen_ = 0;  // a bit each, the last one for all from 63 on
  static constexpr uint32_t kNoDevice = ~0u;
  uint32_t last_device_ = kNoDevice;
  Timeline* last_timeline_ = nullptr;
};

}  // namespace pymon
