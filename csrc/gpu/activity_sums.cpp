#include "gpu/activity_sums.h"

#include <algorithm>
#include <new>

#include "core/histogram.h"

namespace pymon {

using cupti::Activity;

bool ActivitySums::allocate() noexcept { return names_.allocate(); }

size_t ActivitySums::bytes() const noexcept {
  size_t bytes = sizeof *this + NameCache::bytes();
  for (const auto& timeline : timelines_) bytes += timeline ? Timeline::bytes() : 0;
  return bytes;
}

// The hot path: one record at a time, inlined into the walk below.
inline void ActivitySums::add_work(WorkClass work, uint64_t duration_ns, uint64_t bytes) noexcept {
  WorkSums& sums = body_.work[work];
  ++sums.count;
  sums.ns_total += duration_ns;
  sums.bytes_total += bytes;
  if (duration_ns > sums.ns_max) sums.ns_max = duration_ns;
  ++sums.histogram[std::min(histogram_bucket(duration_ns), kWorkBuckets - 1)];
  changed_ |= 1u << work;
}

inline void ActivitySums::add_times(uint64_t begin_ns, uint64_t end_ns) noexcept {
  if (body_.head.first_gpu_ns == 0) body_.head.first_gpu_ns = begin_ns;
  if (end_ns > body_.head.last_gpu_ns) body_.head.last_gpu_ns = end_ns;
}

inline bool ActivitySums::plausible(const RecordClock::Span& span, uint64_t start, uint64_t end) noexcept {
  if (__builtin_expect(span.plausible && start != 0, 1)) return true;
  if (start == 0 || end == 0) {  // CUPTI had no memory for the times, or was made to hand out a running kernel
    ++body_.head.zero_times_total;
  } else {
    ++body_.head.bad_times_total;
  }
  return false;
}

Timeline* ActivitySums::find_timeline(uint32_t device) noexcept {
  const uint64_t bit = uint64_t{1} << std::min(device, 63u);
  body_.head.devices += (devices_seen_ & bit) == 0;
  devices_seen_ |= bit;
  last_device_ = device;
  last_timeline_ = nullptr;
  for (uint32_t slot = 0; slot < kDevices; ++slot) {
    std::unique_ptr<Timeline>& timeline = timelines_[slot];
    if (timeline != nullptr && timeline_devices_[slot] != device) continue;
    if (timeline == nullptr) {
      timeline.reset(new (std::nothrow) Timeline(&body_.head));
      timeline_devices_[slot] = device;
      if (timeline == nullptr || !timeline->allocate()) timeline.reset();
    }
    last_timeline_ = timeline.get();
    break;
  }
  return last_timeline_;
}

// All kernels of one graph launch carry its correlation.
inline bool ActivitySums::begins_launch(uint32_t correlation) noexcept {
  uint32_t& known = graph_launches_[correlation % kGraphLaunches];
  if (known == correlation) return false;
  known = correlation;
  return true;
}

inline void ActivitySums::add_kernel(const cupti::Kernel& kernel) noexcept {
  const WorkClass work = names_.find(kernel.name);
  const RecordClock::Span span = clock_.span(kernel.start, kernel.end);
  if (__builtin_expect(!plausible(span, kernel.start, kernel.end), 0)) return;
  add_work(work, span.end_ns - span.begin_ns, 0);
  ++body_.head.kernels_total;
  if (kernel.graph == 0) {
    ++body_.head.launches_total;
  } else {
    ++body_.head.graph_kernels_total;
    body_.head.launches_total += begins_launch(kernel.correlation);
  }
  add_times(span.begin_ns, span.end_ns);
  if (Timeline* timeline = timeline_of(kernel.device)) {
    const auto kind = is_nccl(work) ? Timeline::kNcclKernel : Timeline::kComputeKernel;
    timeline->add(kernel.stream, span.begin_ns, span.end_ns, kind);
  }
}

void ActivitySums::add_buffer(const cupti::Api& cupti, uint8_t* buffer, size_t valid_bytes) noexcept {
  names_.begin_buffer();
  Activity* record = nullptr;
  uint64_t records = 0;
  while (cupti.cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == cupti::kSuccess) {
    ++records;
    switch (record->kind) {
      case cupti::kConcurrentKernel:
      case cupti::kKernel:
        add_kernel(*reinterpret_cast<const cupti::Kernel*>(record));
        break;
      case cupti::kMemcpy: {
        const auto& copy = *reinterpret_cast<const cupti::Memcpy*>(record);
        const WorkClass work = copy.copy_kind == cupti::kHostToDevice     ? kCopyHostToDevice
                               : copy.copy_kind == cupti::kDeviceToHost   ? kCopyDeviceToHost
                               : copy.copy_kind == cupti::kDeviceToDevice ? kCopyDeviceToDevice
                               : copy.copy_kind == cupti::kPeerToPeer     ? kCopyPeer
                                                                          : kCopyOther;
        add_copy(work, copy.start, copy.end, copy.bytes, copy.device, copy.stream);
        break;
      }
      case cupti::kMemcpyPeer: {
        const auto& copy = *reinterpret_cast<const cupti::MemcpyPeer*>(record);
        add_copy(kCopyPeer, copy.start, copy.end, copy.bytes, copy.device, copy.stream);
        break;
      }
      case cupti::kMemset: {
        const auto& set = *reinterpret_cast<const cupti::Memset*>(record);
        add_copy(kSet, set.start, set.end, set.bytes, set.device, set.stream);
        break;
      }
      case cupti::kSynchronization:
        add_sync(*reinterpret_cast<const cupti::Synchronization*>(record));
        break;
      case cupti::kOverhead:
        break;
      default:
        ++body_.head.unknown_total;
    }
  }
  body_.head.records_total += records;
  ++body_.head.buffers_total;
}

void ActivitySums::settle(uint64_t until_ns) noexcept {
  for (const auto& timeline : timelines_) {
    if (timeline) timeline->settle(until_ns);
  }
}

void ActivitySums::interrupt() noexcept {
  for (const auto& timeline : timelines_) {
    if (timeline) timeline->interrupt();
  }
}

void ActivitySums::add_copy(WorkClass work, uint64_t start, uint64_t end, uint64_t bytes, uint32_t device,
                            uint32_t stream) noexcept {
  const RecordClock::Span span = clock_.span(start, end);
  if (!plausible(span, start, end)) return;
  add_work(work, span.end_ns - span.begin_ns, bytes);
  add_times(span.begin_ns, span.end_ns);
  if (Timeline* timeline = timeline_of(device)) timeline->add(stream, span.begin_ns, span.end_ns, Timeline::kCopy);
}

// The host waited, no GPU worked: sums only.
void ActivitySums::add_sync(const cupti::Synchronization& sync) noexcept {
  const RecordClock::Span span = clock_.span(sync.start, sync.end);
  if (!plausible(span, sync.start, sync.end)) return;
  const WorkClass work = sync.type == cupti::kSyncEvent             ? kSyncOfEvent
                         : sync.type == cupti::kSyncStream          ? kSyncOfStream
                         : sync.type == cupti::kSyncStreamWaitEvent ? kStreamWait
                                                                    : kSyncOfContext;
  add_work(work, span.end_ns - span.begin_ns, 0);
}

}  // namespace pymon
