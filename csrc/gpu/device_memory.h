// How much GPU memory CUPTI may have taken while it was ours, over all leases.
//
// The driver tells free memory of the whole device only, so what others take must be told apart: the growth of torch's
// allocator is known and subtracted; and CUPTI's own growth is bounded by its records, 3,200,000 bytes for 100,000 of them
// (its documented device buffer), so a larger jump in one window, up or down, was somebody else's (NCCL's buffers, lazily
// loaded kernels, another process, torch between its figure and the driver's) and is left out.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pymon {

class DeviceMemory {
 public:
  static constexpr uint64_t kBufferBytes = 3'200'000;
  static constexpr uint64_t kBytesPerRecord = 32;

  // What others took up to now does not count.
  void begin_lease(uint64_t free_bytes, uint64_t reserved_bytes, uint64_t records_total) noexcept {
    taken_by_all_ = -static_cast<int64_t>(free_bytes) - static_cast<int64_t>(reserved_bytes);
    records_total_ = records_total;
  }

  // One window later; gives the bytes that may be CUPTI's.
  uint64_t add_window(uint64_t free_bytes, uint64_t reserved_bytes, uint64_t records_total) noexcept {
    const int64_t taken = -static_cast<int64_t>(free_bytes) - static_cast<int64_t>(reserved_bytes);
    const int64_t rise = taken - taken_by_all_;
    const auto most = static_cast<int64_t>(2 * kBufferBytes + kBytesPerRecord * (records_total - records_total_));
    if (rise <= most && rise >= -most) bytes_ = std::max<int64_t>(0, bytes_ + rise);
    taken_by_all_ = taken;
    records_total_ = records_total;
    return static_cast<uint64_t>(bytes_);
  }

 private:
  int64_t taken_by_all_ = 0, bytes_ = 0;
  uint64_t records_total_ = 0;
};

}  // namespace pymon
