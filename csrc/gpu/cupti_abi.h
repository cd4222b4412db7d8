// The part of the CUPTI Activity API that pymon uses, written from the documented ABI; no vendor header is needed or
// copied. tests/native/abi.cpp holds every offset and number here against the headers of all CUPTI wheels it can get.
//
// Only field prefixes are declared: NVIDIA appends fields, so a struct's size is never a stride. Records are walked by
// cuptiActivityGetNextRecord.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pymon::cupti {

using Result = int;  // CUptiResult is a plain C enum
enum : Result {
  kSuccess = 0,
  kInvalidParameter = 1,
  kMaxLimitReached = 12,  // the end of a buffer
  kNotCompatible = 14,
  kNotInitialized = 15,
  kInvalidKind = 21,
  kInsufficientPrivileges = 35,
  kMultipleSubscribers = 39,  // another tool holds CUPTI
  kUnknown = 999,
};

enum Kind : uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kKernel = 3,            // never enabled: it serialises all kernels
  kConcurrentKernel = 10,
  kOverhead = 17,
  kMemcpyPeer = 22,
  kSynchronization = 38,
};

enum Attribute : uint32_t {
  kZeroedOutActivityBuffer = 5,     // 1: we zero buffers ourselves, CUPTI need not do it in the application's thread
  kPerThreadActivityBuffer = 9,
};

enum : uint32_t { kFlushForced = 1 };  // hands out unfinished records, which then never come back

struct Activity {
  uint32_t kind;
};

// CUpti_ActivityKernel9 to 13 (208 to 248 bytes)
struct Kernel {
  uint32_t kind, unused0[3];
  uint64_t start, end, completed;                  // 16
  uint32_t device, context, stream;                // 40
  int32_t grid[3], block[3];                       // 52
  int32_t static_shared_bytes, dynamic_shared_bytes;  // 76
  uint32_t local_per_thread, local_total;          // 84
  uint32_t correlation;                            // 92
  int64_t grid_id;                                 // 96
  const char* name;                                // 104
  void* reserved;                                  // 112
  uint64_t queued, submitted;                      // 120
  uint8_t launch_type, unused1[7];                 // 136
  uint64_t graph_node;                             // 144
  uint32_t shmem_limit, graph;                     // 152
};
static_assert(offsetof(Kernel, start) == 16 && offsetof(Kernel, device) == 40, "kernel");
static_assert(offsetof(Kernel, correlation) == 92 && offsetof(Kernel, name) == 104, "kernel");
static_assert(offsetof(Kernel, graph_node) == 144 && offsetof(Kernel, graph) == 156, "kernel");

// CUpti_ActivityMemcpy5 to 7 (88 to 112 bytes)
struct Memcpy {
  uint32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;                      // 8
  uint32_t device, context, stream, correlation;   // 32
};
static_assert(offsetof(Memcpy, start) == 16 && offsetof(Memcpy, device) == 32, "memcpy");

// CUpti_ActivityMemcpyPtoP4 (96 bytes)
struct MemcpyPeer {
  uint32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;                      // 8
  uint32_t device, context, stream;                // 32
};
static_assert(offsetof(MemcpyPeer, start) == 16 && offsetof(MemcpyPeer, stream) == 40, "peer memcpy");

enum CopyKind : uint8_t { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 8, kPeerToPeer = 10 };

// CUpti_ActivityMemset4 and 5 (88, 104 bytes)
struct Memset {
  uint32_t kind, value;
  uint64_t bytes, start, end;                      // 8
  uint32_t device, context, stream, correlation;   // 32
};
static_assert(offsetof(Memset, start) == 16 && offsetof(Memset, device) == 32, "memset");

// CUpti_ActivitySynchronization and 2 (40, 56 bytes). Times are the host's.
struct Synchronization {
  uint32_t kind, type;
  uint64_t start, end;                             // 8
  uint32_t correlation, context, stream, event;    // 24
};
static_assert(offsetof(Synchronization, start) == 8 && offsetof(Synchronization, event) == 36, "synchronization");

enum SyncType : uint32_t { kSyncEvent = 1, kSyncStreamWaitEvent = 2, kSyncStream = 3, kSyncContext = 4 };

using BufferRequested = void (*)(uint8_t** buffer, size_t* bytes, size_t* max_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid_bytes);

// name, parameters: one list drives the loader.
#define PYMON_CUPTI_FUNCTIONS(X)                                          \
  X(cuptiGetVersion, (uint32_t*))                                         \
  X(cuptiGetResultString, (Result, const char**))                         \
  X(cuptiGetTimestamp, (uint64_t*))                                       \
  X(cuptiActivityRegisterCallbacks, (BufferRequested, BufferCompleted))   \
  X(cuptiActivityEnable, (uint32_t))                                      \
  X(cuptiActivityDisable, (uint32_t))                                     \
  X(cuptiActivityFlushAll, (uint32_t))                                    \
  X(cuptiActivityGetNextRecord, (uint8_t*, size_t, Activity**))           \
  X(cuptiActivityGetNumDroppedRecords, (void*, uint32_t, size_t*))

// From CUDA 12.8 on.
#define PYMON_CUPTI_OPTIONAL_FUNCTIONS(X) X(cuptiActivityEnableAllSyncRecords, (uint8_t))

struct Api {
#define X(name, parameters) Result(*name) parameters = nullptr;
  PYMON_CUPTI_FUNCTIONS(X)
  PYMON_CUPTI_OPTIONAL_FUNCTIONS(X)
#undef X
};

}  // namespace pymon::cupti
