#include <algorithm>
#include <climits>
#include <cstring>

#include "doubles/nvml/call.h"

using namespace pymon::doubles;

// Processes. The row that the driver writes has 16 (R470), 24, or 32 bytes (R535), whatever the caller thinks.
namespace {

int running(const JsonValue& processes, uint64_t stride, unsigned* count, char* rows) {
  const auto found = static_cast<unsigned>(processes.items.size());
  if (processes.is_null()) return kNotSupported;
  if (*count < found || (rows == nullptr && found > 0)) {
    *count = found;
    return kInsufficientSize;
  }
  *count = found;
  for (const JsonValue& process : processes.items) {
    struct {
      uint32_t pid;
      uint64_t bytes;
      uint32_t gpu_instance, compute_instance;
      uint64_t protected_bytes;
    } row{0, UINT64_MAX, UINT_MAX, UINT_MAX, 0};
    static_assert(sizeof row == 32);
    give(process.at("pid"), &row.pid);
    give(process.at("bytes"), &row.bytes);
    give(process.at("gpu_instance_id"), &row.gpu_instance);
    give(process.at("compute_instance_id"), &row.compute_instance);
    std::memcpy(rows, &row, stride);
    rows += stride;
  }
  return kSuccess;
}

uint64_t stride_of(const Call& call) { return whole_of(call.state->root.at("process_stride")).value_or(24); }

}  // namespace

#define RUNNING(function, key, stride)                               \
  NVML function(void* gpu, unsigned* count, char* rows) {            \
    CALL_GPU(function, gpu);                                         \
    return running(call.at(key), stride, count, rows);               \
  }
RUNNING(nvmlDeviceGetComputeRunningProcesses, "processes", 16)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, "processes", 24)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, "processes", stride_of(call))
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, "graphics_processes", 16)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_processes", 24)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes", stride_of(call))
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes", stride_of(call))

NVML nvmlDeviceGetProcessUtilization(void* gpu, ProcessSample* out, unsigned* count, uint64_t since_us) {
  CALL_GPU(nvmlDeviceGetProcessUtilization, gpu);
  const auto& samples = call.at("process_utilization").items;
  const auto newer = static_cast<unsigned>(std::count_if(samples.begin(), samples.end(), [&](const JsonValue& s) {
    return whole_of(s.at("timestamp_us")).value_or(UINT64_MAX) > since_us;
  }));
  if (call.at("process_utilization").is_null()) return kNotSupported;
  if (newer == 0) return kNotFound;
  if (out == nullptr || *count < newer) {
    *count = newer;
    return kInsufficientSize;
  }
  *count = 0;
  for (const JsonValue& sample : samples) {
    const uint64_t timestamp_us = whole_of(sample.at("timestamp_us")).value_or(monotonic_us());
    if (timestamp_us <= since_us) continue;
    ProcessSample& row = out[(*count)++];
    row = ProcessSample{0, timestamp_us, 0, 0, 0, 0};
    give(sample.at("pid"), &row.pid);
    give(sample.at("sm"), &row.sm);
    give(sample.at("memory"), &row.memory);
  }
  return kSuccess;
}
