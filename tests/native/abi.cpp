// Compiles only where csrc/gpu's own ABI prefixes agree with NVIDIA's headers of one version; test_abi.py gets those.
// cupti_activity.h rather than cupti.h, which wants the CUDA runtime's headers of exactly the same release.
#include <cuda.h>
#include <cupti_result.h>
#include <cupti_activity.h>
#include <cupti_version.h>

#include <tuple>
#include <type_traits>

#include "gpu/cuda_abi.h"
#include "gpu/cupti_abi.h"

#if CUPTI_API_VERSION >= 130400
using TheirKernel = CUpti_ActivityKernel13;
using TheirMemcpy = CUpti_ActivityMemcpy7;
using TheirMemset = CUpti_ActivityMemset5;
#elif CUPTI_API_VERSION >= 130300
using TheirKernel = CUpti_ActivityKernel12;
using TheirMemcpy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130100
using TheirKernel = CUpti_ActivityKernel11;
using TheirMemcpy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 130000
using TheirKernel = CUpti_ActivityKernel10;
using TheirMemcpy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
#elif CUPTI_API_VERSION >= 26
using TheirKernel = CUpti_ActivityKernel9;
using TheirMemcpy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
#else
using TheirKernel = CUpti_ActivityKernel9;
using TheirMemcpy = CUpti_ActivityMemcpy5;
using TheirMemset = CUpti_ActivityMemset4;
#endif
#if CUPTI_API_VERSION >= 26
using TheirSync = CUpti_ActivitySynchronization2;
#else
using TheirSync = CUpti_ActivitySynchronization;
#endif
using TheirPeer = CUpti_ActivityMemcpyPtoP4;

namespace ours = pymon::cupti;

#define SAME_FIELD(Ours, field, Theirs, their_field)                             \
  static_assert(offsetof(ours::Ours, field) == offsetof(Theirs, their_field) &&  \
                    sizeof(ours::Ours::field) == sizeof(Theirs::their_field),    \
                #Ours "." #field)
SAME_FIELD(Kernel, kind, TheirKernel, kind);
SAME_FIELD(Kernel, start, TheirKernel, start);
SAME_FIELD(Kernel, end, TheirKernel, end);
SAME_FIELD(Kernel, completed, TheirKernel, completed);
SAME_FIELD(Kernel, device, TheirKernel, deviceId);
SAME_FIELD(Kernel, context, TheirKernel, contextId);
SAME_FIELD(Kernel, stream, TheirKernel, streamId);
static_assert(offsetof(ours::Kernel, grid) == offsetof(TheirKernel, gridX), "grid");
static_assert(offsetof(ours::Kernel, block) == offsetof(TheirKernel, blockX), "block");
SAME_FIELD(Kernel, correlation, TheirKernel, correlationId);
SAME_FIELD(Kernel, grid_id, TheirKernel, gridId);
SAME_FIELD(Kernel, name, TheirKernel, name);
SAME_FIELD(Kernel, queued, TheirKernel, queued);
SAME_FIELD(Kernel, graph_node, TheirKernel, graphNodeId);
SAME_FIELD(Kernel, graph, TheirKernel, graphId);
SAME_FIELD(Memcpy, kind, TheirMemcpy, kind);
SAME_FIELD(Memcpy, copy_kind, TheirMemcpy, copyKind);
SAME_FIELD(Memcpy, bytes, TheirMemcpy, bytes);
SAME_FIELD(Memcpy, start, TheirMemcpy, start);
SAME_FIELD(Memcpy, end, TheirMemcpy, end);
SAME_FIELD(Memcpy, device, TheirMemcpy, deviceId);
SAME_FIELD(Memcpy, stream, TheirMemcpy, streamId);
SAME_FIELD(MemcpyPeer, kind, TheirPeer, kind);
SAME_FIELD(MemcpyPeer, bytes, TheirPeer, bytes);
SAME_FIELD(MemcpyPeer, start, TheirPeer, start);
SAME_FIELD(MemcpyPeer, end, TheirPeer, end);
SAME_FIELD(MemcpyPeer, device, TheirPeer, deviceId);
SAME_FIELD(MemcpyPeer, stream, TheirPeer, streamId);
SAME_FIELD(Memset, kind, TheirMemset, kind);
SAME_FIELD(Memset, bytes, TheirMemset, bytes);
SAME_FIELD(Memset, start, TheirMemset, start);
SAME_FIELD(Memset, end, TheirMemset, end);
SAME_FIELD(Memset, device, TheirMemset, deviceId);
SAME_FIELD(Memset, stream, TheirMemset, streamId);
SAME_FIELD(Synchronization, kind, TheirSync, kind);
SAME_FIELD(Synchronization, type, TheirSync, type);
SAME_FIELD(Synchronization, start, TheirSync, start);
SAME_FIELD(Synchronization, end, TheirSync, end);
SAME_FIELD(Synchronization, stream, TheirSync, streamId);
SAME_FIELD(Synchronization, event, TheirSync, cudaEventId);

#define SAME_NUMBER(ours_name, theirs) \
  static_assert(static_cast<long long>(ours_name) == static_cast<long long>(theirs), #theirs)
SAME_NUMBER(ours::kSuccess, CUPTI_SUCCESS);
SAME_NUMBER(ours::kInvalidParameter, CUPTI_ERROR_INVALID_PARAMETER);
SAME_NUMBER(ours::kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_NUMBER(ours::kNotCompatible, CUPTI_ERROR_NOT_COMPATIBLE);
SAME_NUMBER(ours::kNotInitialized, CUPTI_ERROR_NOT_INITIALIZED);
SAME_NUMBER(ours::kInvalidKind, CUPTI_ERROR_INVALID_KIND);
SAME_NUMBER(ours::kInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME_NUMBER(ours::kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_NUMBER(ours::kUnknown, CUPTI_ERROR_UNKNOWN);
SAME_NUMBER(ours::kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_NUMBER(ours::kMemset, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_NUMBER(ours::kKernel, CUPTI_ACTIVITY_KIND_KERNEL);
SAME_NUMBER(ours::kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_NUMBER(ours::kOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
SAME_NUMBER(ours::kMemcpyPeer, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME_NUMBER(ours::kSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME_NUMBER(ours::kZeroedOutActivityBuffer, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
SAME_NUMBER(ours::kPerThreadActivityBuffer, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER);
SAME_NUMBER(ours::kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME_NUMBER(ours::kHostToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME_NUMBER(ours::kDeviceToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME_NUMBER(ours::kDeviceToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME_NUMBER(ours::kPeerToPeer, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
SAME_NUMBER(ours::kSyncEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
SAME_NUMBER(ours::kSyncStreamWaitEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
SAME_NUMBER(ours::kSyncStream, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
SAME_NUMBER(ours::kSyncContext, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
SAME_NUMBER(pymon::cuda::kSuccess, CUDA_SUCCESS);
SAME_NUMBER(pymon::cuda::kNotReady, CUDA_ERROR_NOT_READY);
SAME_NUMBER(pymon::cuda::kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_NUMBER(pymon::cuda::kEventDefault, CU_EVENT_DEFAULT);
SAME_NUMBER(pymon::cuda::kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(pymon::cuda::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);

// Functions: as many parameters, each of the same size, and pointers where they have pointers.
template <typename A, typename B>
constexpr bool same_parameter() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
}
template <typename ROurs, typename... Ours, typename RTheirs, typename... Theirs>
constexpr bool same_function(ROurs (*)(Ours...), RTheirs (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return sizeof(ROurs) == sizeof(RTheirs) && (same_parameter<Ours, Theirs>() && ...);
  }
}
#define X(name, parameters) static_assert(same_function(decltype(ours::Api::name){}, decltype(&::name){}), #name);
PYMON_CUPTI_FUNCTIONS(X)
#if CUPTI_API_VERSION >= 26
PYMON_CUPTI_OPTIONAL_FUNCTIONS(X)
#endif
#undef X
#define X(name, parameters) static_assert(same_function(decltype(pymon::cuda::Api::name){}, decltype(&::name){}), #name);
PYMON_CUDA_FUNCTIONS(X)
#undef X

int main() { return 0; }
