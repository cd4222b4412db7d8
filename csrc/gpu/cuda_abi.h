// The part of the CUDA driver's C ABI that pymon calls, written from its documentation; no vendor header is needed or
// copied. Handles are opaque pointers, CUresult is a plain C enum. tests/native/abi.cpp holds it against the real headers.
#pragma once

#include <cstddef>

namespace pymon::cuda {

using Result = int;
using Context = void*;
using Event = void*;
using Stream = void*;

enum : Result {
  kSuccess = 0,
  kNotReady = 600,                // CUDA_ERROR_NOT_READY: the event has not happened yet
  kStreamCaptureImplicit = 906,   // asked about the legacy stream while another one captures; harms no capture
};
enum : unsigned { kEventDefault = 0 };       // with timing, no blocking sync
enum : int { kCaptureNone = 0 };             // CUstreamCaptureStatus
enum : int { kCaptureModeRelaxed = 2 };      // CUstreamCaptureMode

// name, parameters: one list drives the loader. The suffixes are the driver's own: plain names are older variants.
#define PYMON_CUDA_FUNCTIONS(X)                              \
  X(cuDriverGetVersion, (int*))                              \
  X(cuCtxGetCurrent, (Context*))                             \
  X(cuCtxSetCurrent, (Context))                              \
  X(cuEventCreate, (Event*, unsigned))                       \
  X(cuEventRecord, (Event, Stream))                          \
  X(cuEventQuery, (Event))                                   \
  X(cuEventElapsedTime, (float*, Event, Event))              \
  X(cuStreamIsCapturing, (Stream, int*))                     \
  X(cuThreadExchangeStreamCaptureMode, (int*))               \
  X(cuMemGetInfo_v2, (size_t*, size_t*))

struct Api {
#define X(name, parameters) Result(*name) parameters = nullptr;
  PYMON_CUDA_FUNCTIONS(X)
#undef X
};

}  // namespace pymon::cuda
