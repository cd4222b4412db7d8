// Compiles only where csrc/gpu's own ABI prefixes agree with NVIDIA's headers of one version; test_abi.py gets those, and
// defines Their<Record> as the record that the header itself names for the kind.
// cupti_activity.h rather than cupti.h, which wants the CUDA runtime's headers of exactly the same release.
#define __CUDA_API_VERSION_INTERNAL  // cuda.h then declares each function by the name that the library exports
#include <cuda.h>
#include <cupti_result.h>
#include <cupti_activity.h>
#include <cupti_version.h>

#include <cstddef>
#include <type_traits>

#include "gpu/cuda_abi.h"
#include "gpu/cupti_abi.h"
#include "abi_same.h"

namespace cupti = pymon::cupti;
namespace cuda = pymon::cuda;

#define SAME_FIELD(Ours, field, their_field)                                                   \
  static_assert(offsetof(cupti::Ours, field) == offsetof(Their##Ours, their_field) &&          \
                    sizeof(cupti::Ours::field) == sizeof(Their##Ours::their_field) &&          \
                    std::is_pointer_v<decltype(cupti::Ours::field)> ==                         \
                        std::is_pointer_v<decltype(Their##Ours::their_field)>,                 \
                #Ours "." #field)
#define SAME_ARRAY(Ours, field, first, last)                                                   \
  static_assert(offsetof(cupti::Ours, field) == offsetof(Their##Ours, first) &&                \
                    offsetof(cupti::Ours, field) + sizeof(cupti::Ours::field) ==               \
                        offsetof(Their##Ours, last) + sizeof(Their##Ours::last),               \
                #Ours "." #field)
// A prefix may be read whole.
#define NOT_LONGER(Ours) static_assert(sizeof(cupti::Ours) <= sizeof(Their##Ours), #Ours " is longer than a record")

using TheirActivity = CUpti_Activity;
NOT_LONGER(Activity);
SAME_FIELD(Activity, kind, kind);

NOT_LONGER(Kernel);
SAME_FIELD(Kernel, kind, kind);
SAME_FIELD(Kernel, start, start);
SAME_FIELD(Kernel, end, end);
SAME_FIELD(Kernel, completed, completed);
SAME_FIELD(Kernel, device, deviceId);
SAME_FIELD(Kernel, context, contextId);
SAME_FIELD(Kernel, stream, streamId);
SAME_ARRAY(Kernel, grid, gridX, gridZ);
SAME_ARRAY(Kernel, block, blockX, blockZ);
SAME_FIELD(Kernel, static_shared_bytes, staticSharedMemory);
SAME_FIELD(Kernel, dynamic_shared_bytes, dynamicSharedMemory);
SAME_FIELD(Kernel, local_per_thread, localMemoryPerThread);
SAME_FIELD(Kernel, local_total, localMemoryTotal);
SAME_FIELD(Kernel, correlation, correlationId);
SAME_FIELD(Kernel, grid_id, gridId);
SAME_FIELD(Kernel, name, name);
SAME_FIELD(Kernel, reserved, reserved0);
SAME_FIELD(Kernel, queued, queued);
SAME_FIELD(Kernel, submitted, submitted);
SAME_FIELD(Kernel, launch_type, launchType);
SAME_FIELD(Kernel, graph_node, graphNodeId);
SAME_FIELD(Kernel, shmem_limit, shmemLimitConfig);
SAME_FIELD(Kernel, graph, graphId);

NOT_LONGER(Memcpy);
SAME_FIELD(Memcpy, kind, kind);
SAME_FIELD(Memcpy, copy_kind, copyKind);
SAME_FIELD(Memcpy, source_kind, srcKind);
SAME_FIELD(Memcpy, destination_kind, dstKind);
SAME_FIELD(Memcpy, flags, flags);
SAME_FIELD(Memcpy, bytes, bytes);
SAME_FIELD(Memcpy, start, start);
SAME_FIELD(Memcpy, end, end);
SAME_FIELD(Memcpy, device, deviceId);
SAME_FIELD(Memcpy, context, contextId);
SAME_FIELD(Memcpy, stream, streamId);
SAME_FIELD(Memcpy, correlation, correlationId);

NOT_LONGER(MemcpyPeer);
SAME_FIELD(MemcpyPeer, kind, kind);
SAME_FIELD(MemcpyPeer, copy_kind, copyKind);
SAME_FIELD(MemcpyPeer, source_kind, srcKind);
SAME_FIELD(MemcpyPeer, destination_kind, dstKind);
SAME_FIELD(MemcpyPeer, flags, flags);
SAME_FIELD(MemcpyPeer, bytes, bytes);
SAME_FIELD(MemcpyPeer, start, start);
SAME_FIELD(MemcpyPeer, end, end);
SAME_FIELD(MemcpyPeer, device, deviceId);
SAME_FIELD(MemcpyPeer, context, contextId);
SAME_FIELD(MemcpyPeer, stream, streamId);

NOT_LONGER(Memset);
SAME_FIELD(Memset, kind, kind);
SAME_FIELD(Memset, value, value);
SAME_FIELD(Memset, bytes, bytes);
SAME_FIELD(Memset, start, start);
SAME_FIELD(Memset, end, end);
SAME_FIELD(Memset, device, deviceId);
SAME_FIELD(Memset, context, contextId);
SAME_FIELD(Memset, stream, streamId);
SAME_FIELD(Memset, correlation, correlationId);

NOT_LONGER(Synchronization);
SAME_FIELD(Synchronization, kind, kind);
SAME_FIELD(Synchronization, type, type);
SAME_FIELD(Synchronization, start, start);
SAME_FIELD(Synchronization, end, end);
SAME_FIELD(Synchronization, correlation, correlationId);
SAME_FIELD(Synchronization, context, contextId);
SAME_FIELD(Synchronization, stream, streamId);
SAME_FIELD(Synchronization, event, cudaEventId);

SAME_NUMBER(cupti::kSuccess, CUPTI_SUCCESS);
SAME_NUMBER(cupti::kInvalidParameter, CUPTI_ERROR_INVALID_PARAMETER);
SAME_NUMBER(cupti::kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_NUMBER(cupti::kNotCompatible, CUPTI_ERROR_NOT_COMPATIBLE);
SAME_NUMBER(cupti::kNotInitialized, CUPTI_ERROR_NOT_INITIALIZED);
SAME_NUMBER(cupti::kInvalidKind, CUPTI_ERROR_INVALID_KIND);
SAME_NUMBER(cupti::kInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME_NUMBER(cupti::kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_NUMBER(cupti::kUnknown, CUPTI_ERROR_UNKNOWN);
SAME_NUMBER(cupti::kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_NUMBER(cupti::kMemset, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_NUMBER(cupti::kKernel, CUPTI_ACTIVITY_KIND_KERNEL);
SAME_NUMBER(cupti::kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_NUMBER(cupti::kOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
SAME_NUMBER(cupti::kMemcpyPeer, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME_NUMBER(cupti::kSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME_NUMBER(cupti::kZeroedOutActivityBuffer, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
SAME_NUMBER(cupti::kPerThreadActivityBuffer, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER);
SAME_NUMBER(cupti::kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME_NUMBER(cupti::kHostToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME_NUMBER(cupti::kDeviceToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME_NUMBER(cupti::kDeviceToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME_NUMBER(cupti::kPeerToPeer, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
SAME_NUMBER(cupti::kSyncEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
SAME_NUMBER(cupti::kSyncStreamWaitEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
SAME_NUMBER(cupti::kSyncStream, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
SAME_NUMBER(cupti::kSyncContext, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
SAME_NUMBER(cuda::kSuccess, CUDA_SUCCESS);
SAME_NUMBER(cuda::kNotReady, CUDA_ERROR_NOT_READY);
SAME_NUMBER(cuda::kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_NUMBER(cuda::kEventDefault, CU_EVENT_DEFAULT);
SAME_NUMBER(cuda::kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(cuda::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);

#define X(name, parameters) static_assert(Same<decltype(cupti::Api::name), decltype(&::name)>::value, #name);
PYMON_CUPTI_FUNCTIONS(X)
#if CUPTI_API_VERSION >= 26
PYMON_CUPTI_OPTIONAL_FUNCTIONS(X)
#endif
#undef X
#define X(name, parameters) static_assert(Same<decltype(cuda::Api::name), decltype(&::name)>::value, #name);
PYMON_CUDA_FUNCTIONS(X)
#undef X

int main() { return 0; }
