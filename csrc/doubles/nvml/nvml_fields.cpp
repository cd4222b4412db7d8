// Field values, and GPM.

#include <time.h>

#include <climits>

#include "doubles/nvml/call.h"

using namespace pymon::doubles;

// Fields: "186" is field 186, "138/3" the one of link 3; "field_codes" fails one, "field_types" gives another type.
NVML nvmlDeviceGetFieldValues(void* gpu, int count, FieldValue* values) {
  CALL_GPU(nvmlDeviceGetFieldValues, gpu);
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  for (int i = 0; i < count; ++i) {
    FieldValue& field = values[i];
    field.timestamp_us = now.tv_sec * 1000000 + now.tv_nsec / 1000;
    field.latency_us = 1;
    field.value.as_u64 = 0;
    const std::string id = std::to_string(field.field_id);
    const JsonValue& scoped = call.at("fields").at(id + "/" + std::to_string(field.scope_id));
    const bool whole_gpu = field.scope_id == 0 || field.scope_id == UINT_MAX;
    const JsonValue& value = scoped.is_null() && whole_gpu ? call.at("fields").at(id) : scoped;
    const JsonValue& code = call.at("field_codes").at(id);
    const std::string& type = call.at("field_types").at(id).text;
    field.result = code.is_null() ? kSuccess : static_cast<int>(code.number);
    if (field.result != kSuccess) continue;
    if (type == "double") {
      field.value_type = kTypeDouble;
      field.value.as_double = value.number;
    } else if (type == "u32") {
      field.value_type = kTypeU32;
      field.result = give(value, &field.value.as_u32);
    } else {
      field.value_type = kTypeU64;
      field.result = give(value, &field.value.as_u64);
    }
  }
  return kSuccess;
}

// GPM: "gpm" holds the metrics in percent or MiB/s, by number.
namespace pymon::doubles {
struct GpmSample {
  uint64_t taken_us;
  std::string key;
  long gpu_instance_id;  // -1: the whole GPU
};
}  // namespace pymon::doubles

NVML nvmlGpmQueryDeviceSupport(void* gpu, GpmSupport* out) {
  CALL_GPU(nvmlGpmQueryDeviceSupport, gpu);
  out->supported = call.at("gpm").is_null() ? 0 : 1;
  return kSuccess;
}
NVML nvmlGpmSampleAlloc(GpmSample** out) {
  CALL(nvmlGpmSampleAlloc);
  *out = new GpmSample{0, {}, -1};
  return kSuccess;
}
NVML nvmlGpmSampleFree(GpmSample* sample) {
  CALL(nvmlGpmSampleFree);
  delete sample;
  return kSuccess;
}
NVML nvmlGpmSampleGet(void* gpu, GpmSample* sample) {
  CALL_GPU(nvmlGpmSampleGet, gpu);
  if (call.at("gpm").is_null()) return kNotSupported;
  *sample = GpmSample{monotonic_us(), call.device->key, -1};
  return kSuccess;
}
NVML nvmlGpmMigSampleGet(void* gpu, unsigned gpu_instance_id, GpmSample* sample) {
  CALL_GPU(nvmlGpmMigSampleGet, gpu);
  *sample = GpmSample{monotonic_us(), call.device->key, static_cast<long>(gpu_instance_id)};
  return kSuccess;
}
NVML nvmlGpmMetricsGet(GpmMetrics* metrics) {
  const Call call("");
  if (call.failure != 0) return call.failure;
  const GpmSample *first = metrics->first, *second = metrics->second;
  if (metrics->version != 1) return kVersionMismatch;
  if (first == nullptr || second == nullptr || first->taken_us == 0 || second->taken_us <= first->taken_us ||
      first->key != second->key || first->gpu_instance_id != second->gpu_instance_id) {
    return kInvalidArgument;
  }
  const int index = index_of(*call.state, second->key);
  if (const int failure = fault_of(*call.state, "nvmlGpmMetricsGet", index)) return failure;
  const JsonValue* found = &call.state->gpu(index).at("gpm");
  for (const JsonValue& instance : call.state->gpu(index).at("mig").at("instances").items) {
    if (static_cast<long>(instance.at("gpu_instance_id").number) == second->gpu_instance_id) found = &instance.at("gpm");
  }
  for (unsigned i = 0; i < metrics->count; ++i) {
    GpmMetric& metric = metrics->metrics[i];
    const auto value = number_of(numbered(*found, metric.id));
    metric.result = value ? kSuccess : kNotSupported;
    metric.value = value.value_or(0);
    metric.short_name = metric.long_name = metric.unit = "";
  }
  return kSuccess;
}
