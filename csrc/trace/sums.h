// What a trace comes to: the numbers that rules judge. docs/facts.md defines each.
//
// All times are integer nanoseconds and, unless said otherwise, unions of intervals clipped to the window.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/intervals.h"
#include "trace/reader.h"

namespace pymon::trace {

enum class WindowSource : uint8_t { kNone, kProfilerSteps, kGiven, kOptimizerSteps, kWholeTrace };

// Time of the GPU in the window. `idle_by_*` part the idle time; see docs/facts.md.
struct GpuSums {
  int64_t busy_ns = 0, compute_ns = 0, comm_ns = 0, copy_ns = 0;
  int64_t exposed_comm_ns = 0, exposed_copy_ns = 0, idle_ns = 0;
  int64_t idle_by_data_ns = 0, idle_by_gpu_ns = 0, idle_by_sync_ns = 0, idle_by_allocator_ns = 0, idle_by_host_ns = 0;
  int64_t sync_recoverable_ns = 0;  // at most this much idle would go if no call waited for the GPU
  int64_t launch_to_start_p50_ns = -1;
  int64_t kernel_p50_ns = -1;
  uint64_t kernels_total = 0;
  int64_t h2d_pageable_bytes = 0;
  int64_t h2d_pageable_api_ns = 0;
};

struct Loader {
  uint64_t calls_total = 0;
  uint64_t single_total = 0;  // by _SingleProcessDataLoaderIter: num_workers=0
  uint64_t multi_total = 0;
  int64_t wait_ns = 0;
  int64_t longest_ns = 0;
};

// Outermost aten::item, _local_scalar_dense, nonzero, is_nonzero.
struct ScalarReads {
  uint64_t calls_total = 0;
  uint64_t with_copy_total = 0;  // with a device-to-host copy of at most 64 bytes
  int64_t ns = 0;
};

struct Named {
  uint32_t name;
  uint64_t calls_total;
  int64_t ns;
};

// A place that makes the host wait or read scalars. `frame` is a Python frame, or an annotation.
struct Site {
  uint32_t frame;
  uint32_t call;
  bool is_frame;
  uint64_t calls_total;
  int64_t ns;
};

struct Credibility {
  uint64_t gpu_without_launch_total = 0;
  uint64_t launches_total = 0;  // of kernels and graphs
  uint64_t launches_without_kernel_total = 0;
  uint64_t kernels_before_launch_total = 0;
  uint64_t graph_launches_total = 0;
  uint64_t graph_launches_empty_total = 0;
  int64_t overhead_ns = 0;
};

struct Sums {
  WindowSource source = WindowSource::kNone;
  int64_t window_ns = 0;
  uint64_t steps_total = 0;
  std::vector<int64_t> step_ns;  // of ProfilerStep ranges; at most 4,096
  uint64_t host_events_total = 0;
  uint64_t ops_total = 0;
  uint64_t gpu_events_total = 0;
  std::optional<GpuSums> gpu;  // absent without GPU events: unknown, never idle
  Loader loader;
  ScalarReads reads;
  int64_t blocked_ns = 0;  // the host stood in a call that waits for the GPU
  int64_t waited_ns = 0;   // the same without host-to-device copies
  std::vector<Named> blocking;
  int64_t op_ns = 0;  // union of operators
  std::vector<Named> top_ops;      // by self time
  std::vector<Named> top_kernels;  // by time
  std::vector<Site> sites;         // by time
  Credibility credibility;
};

// `given_steps` > 0: the file holds exactly that many steps (known from the capture's own record).
Sums sum_up(const Reader& reader, uint64_t given_steps = 0);

}  // namespace pymon::trace
