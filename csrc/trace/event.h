// One event of a trace, as columns need it.
#pragma once

#include <cstdint>

namespace pymon::trace {

// What an event is, from its category; old and new spellings give the same kind.
enum class Kind : uint8_t {
  kOp,          // cpu_op; `Operator` up to PyTorch 1.11
  kAnnotation,  // user_annotation
  kRuntime,     // cuda_runtime, cuda_driver, `Runtime`; ROCm uses the same
  kPython,      // python_function
  kOverhead,    // the profiler's own
  kKernel,
  kCopy,
  kSet,
};

constexpr bool is_gpu(Kind kind) { return kind >= Kind::kKernel; }

struct HostEvent {
  int64_t ts_ns;
  int64_t dur_ns;
  int64_t correlation;  // -1: none
  uint32_t name;
  uint32_t stack;  // the user's frame from the `Call stack` argument of old traces, else Names::kEmpty
  uint32_t thread;
  Kind kind;

  int64_t end_ns() const { return ts_ns + dur_ns; }
};

struct GpuEvent {
  int64_t ts_ns;
  int64_t dur_ns;
  int64_t correlation;  // -1: none
  int64_t bytes;        // of copies and sets; -1: not said
  uint32_t name;
  int32_t device;
  int32_t stream;
  Kind kind;

  int64_t end_ns() const { return ts_ns + dur_ns; }
};

}  // namespace pymon::trace
