// Controls of the libcuda double. Built for tests only, never installed.
//
// Its GPU is a clock: work on a stream takes the time that the test says, events happen when the work before them is
// done, and everything else is only counted. Like the driver it lets a query break a global-mode graph capture unless
// the asking thread has put itself into relaxed mode, and loads the library of CUDA_INJECTION64_PATH in cuInit.
#pragma once

#include <cstddef>
#include <cstdint>

#define PYMON_DOUBLE extern "C" __attribute__((visibility("default")))

PYMON_DOUBLE void cuda_double_work(void* stream, uint64_t duration_ns);  // enqueues, returns at once
PYMON_DOUBLE void cuda_double_context(void* context);                    // of the calling thread
PYMON_DOUBLE void cuda_double_capture(void* stream, int on);             // global mode
PYMON_DOUBLE uint64_t cuda_double_captures_broken();
PYMON_DOUBLE void cuda_double_fail(const char* function, int result);    // from now on; 0 mends it
PYMON_DOUBLE void cuda_double_free_bytes(uint64_t bytes);
PYMON_DOUBLE uint64_t cuda_double_calls(const char* function);
