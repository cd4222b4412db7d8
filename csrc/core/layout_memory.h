// The page's section of memory (since minor 5): what the CUDA caching allocator says of each device, by the training
// thread, and the host memory of the process and of its loader workers, by the sender thread. Written under the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon {

// Append only, as is the order below.
enum AllocatorValue : uint32_t {
  kAllocated, kReserved, kActive, kInactiveSplit, kRequested, kAllocatedPeak, kReservedPeak, kSegments, kAllocRetries,
  kOoms, kDeviceAllocs, kDeviceFrees, kDeviceMemory,
  kAllocatorValuesUsed,
};
constexpr const char* kAllocatorValueNames[kAllocatorValuesUsed] = {
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
    "allocated_peak_bytes", "reserved_peak_bytes", "segments", "alloc_retries_total", "ooms_total",
    "device_allocs_total", "device_frees_total", "device_memory_bytes",
};
constexpr uint32_t kAllocatorValues = 15;
constexpr uint32_t kAllocatorDevices = 16;
constexpr uint32_t kDeviceUuidBytes = 40;

struct AllocatorState {                    // word index
  char uuid[kDeviceUuidBytes];             //  0  as NVML has it, NUL padded; empty: not known
  uint64_t device;                         //  5  torch's index
  uint64_t step;                           //  6  the step that had just ended
  uint64_t read_mono_ns;                   //  7
  uint64_t told;                           //  8  a bit for each value that this allocator has
  uint64_t value[kAllocatorValues];        //  9
};
static_assert(sizeof(AllocatorState) == 24 * 8, "allocator state");

enum HostValue : uint32_t {
  kRss, kDescriptors, kShm, kUss, kWorkers, kWorkersRss, kWorkersDescriptors, kWorkersShm, kWorkersUss,
  kHostValuesUsed,
};
constexpr const char* kHostValueNames[kHostValuesUsed] = {
    "rss_bytes", "descriptors", "shm_bytes", "uss_bytes",
    "workers", "workers_rss_bytes", "workers_descriptors", "workers_shm_bytes", "workers_uss_bytes",
};
constexpr uint32_t kHostValues = 14;

struct MemoryBody {                        // word index
  uint64_t devices;                        //  0  entries of `allocator` in use
  uint64_t host_read_mono_ns[kHostValues]; //  1  when each was read; 0: not told
  uint64_t host[kHostValues];              // 15
  uint64_t reserved[3];                    // 29
  AllocatorState allocator[kAllocatorDevices];  // 32
};
constexpr uint64_t kMemoryWords = 416;
static_assert(sizeof(MemoryBody) == kMemoryWords * 8, "memory body");
static_assert(offsetof(MemoryBody, host) == 15 * 8 && offsetof(MemoryBody, allocator) == 32 * 8, "memory body");

struct MemorySection {
  uint64_t seq;
  uint64_t pad[7];
  MemoryBody body;
};

}  // namespace pymon
