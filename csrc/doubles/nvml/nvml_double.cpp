// A libnvidia-ml.so.1 whose GPUs are what a JSON file says. Built for tests only, never installed. See node_state.h.
//
// Like the driver's library it refuses every call before nvmlInit, forgets its handles at nvmlShutdown, answers a GPU
// that is not there any more GPU_IS_LOST, and a reading that a GPU lacks NOT_SUPPORTED.

#include "doubles/nvml/nvml_abi.h"
#include "doubles/nvml/node_state.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

using namespace pymon::doubles;

#define NVML extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kGpuIsLost = 15;
constexpr uint64_t kXidCritical = 8;

// A handle: a GPU by its UUID, or one of its MIG instances. Handles live for ever, so that a stale one is seen as such.
struct Device {
  std::string key;
  int mig = -1;
  int generation = 0;
};

std::mutex g_mutex;
int g_inits = 0;
int g_generation = 0;
std::map<std::pair<std::string, int>, Device*> g_devices;  // by key and instance, of this generation

std::string key_of(const NodeState& state, int index) {
  const std::string& uuid = state.gpu(index).at("uuid").text;
  return uuid.empty() ? "#" + std::to_string(index) : uuid;
}

Device* device_of(const std::string& key, int mig) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Device*& found = g_devices[{key, mig}];
  if (found == nullptr) found = new Device{key, mig, g_generation};
  return found;
}

int index_of(const NodeState& state, const std::string& key) {
  for (int index = 0; index < static_cast<int>(state.gpu_count()); ++index) {
    if (key_of(state, index) == key) return index;
  }
  return -1;
}

// A call about a GPU: what the file says of it, or the code to answer.
struct Call {
  std::shared_ptr<const NodeState> state = node_state();
  const Device* device = nullptr;
  const JsonValue* gpu = nullptr;  // the instance where the handle is one
  int index = -1;
  int failure = 0;

  explicit Call(const char* function) {
    if (g_inits == 0) {
      failure = kUninitialized;
    } else {
      failure = fault_of(*state, function, -1);
    }
  }

  Call(const char* function, void* handle) : device(static_cast<const Device*>(handle)) {
    if (g_inits == 0) {
      failure = kUninitialized;
    } else if (device == nullptr || device->generation != g_generation) {
      failure = kInvalidArgument;
    } else {
      index = index_of(*state, device->key);
      failure = fault_of(*state, function, index, device->mig);
      if (failure == 0 && index < 0) failure = kGpuIsLost;
      gpu = &state->gpu(index);
      if (device->mig >= 0) resolve_instance();
    }
  }

  void resolve_instance() {
    const auto& instances = gpu->at("mig").at("instances").items;
    if (static_cast<size_t>(device->mig) < instances.size()) {
      gpu = &instances[static_cast<size_t>(device->mig)];
    } else if (failure == 0) {
      failure = kInvalidArgument;  // the instance was destroyed
    }
  }

  const JsonValue& at(const char* key) const { return gpu->at(key); }
};

#define CALL(function)   \
  const Call call(#function); \
  if (call.failure != 0) return call.failure

#define CALL_GPU(function, handle)  \
  const Call call(#function, handle); \
  if (call.failure != 0) return call.failure

int give_text(const JsonValue& value, char* out, unsigned size) {
  if (value.is_null()) return kNotSupported;
  if (value.text.size() + 1 > size) return kInsufficientSize;
  std::memcpy(out, value.text.c_str(), value.text.size() + 1);
  return kSuccess;
}

template <typename Number>
int give(const JsonValue& value, Number* out) {
  const auto whole = whole_of(value);
  if (!whole) return kNotSupported;
  *out = static_cast<Number>(*whole);
  return kSuccess;
}

template <typename Number>
int give_pair(const JsonValue& value, Number* first, Number* second) {
  if (value.items.size() != 2) return kNotSupported;
  give(value.items[0], first);
  return give(value.items[1], second);
}

const JsonValue& numbered(const JsonValue& value, uint64_t number) { return value.at(std::to_string(number)); }

}  // namespace

// By which pymon tells a double from a driver.
extern "C" __attribute__((visibility("default"))) const char pymon_nvml_double[] = "nvml";

NVML nvmlInitWithFlags(unsigned) {
  const auto state = node_state();
  if (const int failure = fault_of(*state, "nvmlInitWithFlags", -1)) return failure;
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_inits++ == 0) {
    ++g_generation;
    g_devices.clear();
  }
  return kSuccess;
}
NVML nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML nvmlShutdown() {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_inits == 0) return kUninitialized;
  --g_inits;
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess: return "Success";
    case kNotSupported: return "Not Supported";
    case kGpuIsLost: return "GPU is lost";
    default: return "Unknown Error";
  }
}

// The system
NVML nvmlSystemGetDriverVersion(char* out, unsigned size) {
  CALL(nvmlSystemGetDriverVersion);
  return give_text(call.state->root.at("driver_version"), out, size);
}
NVML nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  CALL(nvmlSystemGetNVMLVersion);
  return give_text(call.state->root.at("nvml_version"), out, size);
}
NVML nvmlSystemGetCudaDriverVersion_v2(int* out) {
  CALL(nvmlSystemGetCudaDriverVersion_v2);
  return give(call.state->root.at("cuda_version"), out);
}
NVML nvmlSystemGetCudaDriverVersion(int* out) { return nvmlSystemGetCudaDriverVersion_v2(out); }
NVML nvmlDeviceGetCount_v2(unsigned* out) {
  CALL(nvmlDeviceGetCount_v2);
  *out = static_cast<unsigned>(call.state->gpu_count());
  return kSuccess;
}

// Handles
NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  const Call call("");
  if (call.failure != 0) return call.failure;
  if (index >= call.state->gpu_count()) return kInvalidArgument;
  const int at = static_cast<int>(index);
  if (const int failure = fault_of(*call.state, "nvmlDeviceGetHandleByIndex_v2", at)) return failure;
  *out = device_of(key_of(*call.state, at), -1);
  return kSuccess;
}
NVML nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  const Call call("");
  if (call.failure != 0) return call.failure;
  const int index = index_of(*call.state, uuid);
  if (index < 0) return kNotFound;
  if (const int failure = fault_of(*call.state, "nvmlDeviceGetHandleByUUID", index)) return failure;
  *out = device_of(uuid, -1);
  return kSuccess;
}

// Who it is
NVML nvmlDeviceGetName(void* gpu, char* out, unsigned size) {
  CALL_GPU(nvmlDeviceGetName, gpu);
  return give_text(call.at("name"), out, size);
}
NVML nvmlDeviceGetUUID(void* gpu, char* out, unsigned size) {
  CALL_GPU(nvmlDeviceGetUUID, gpu);
  return give_text(call.at("uuid"), out, size);
}
NVML nvmlDeviceGetSerial(void* gpu, char* out, unsigned size) {
  CALL_GPU(nvmlDeviceGetSerial, gpu);
  return give_text(call.at("serial"), out, size);
}
NVML nvmlDeviceGetIndex(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetIndex, gpu);
  *out = static_cast<unsigned>(call.index);
  return kSuccess;
}
NVML nvmlDeviceGetMinorNumber(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetMinorNumber, gpu);
  *out = static_cast<unsigned>(call.index);
  return kSuccess;
}
NVML nvmlDeviceGetPciInfo_v3(void* gpu, Pci* out) {
  CALL_GPU(nvmlDeviceGetPciInfo_v3, gpu);
  const JsonValue& bus_id = call.at("pci_bus_id");
  if (bus_id.is_null()) return kNotSupported;
  std::memset(out, 0, sizeof *out);
  std::snprintf(out->bus_id, sizeof out->bus_id, "%s", bus_id.text.c_str());
  const size_t skip = bus_id.text.size() > 12 ? bus_id.text.size() - 12 : 0;  // the short form has four domain digits
  std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%s", bus_id.text.c_str() + skip);
  std::sscanf(bus_id.text.c_str(), "%x:%x:%x", &out->domain, &out->bus, &out->device);
  return kSuccess;
}
NVML nvmlDeviceGetCudaComputeCapability(void* gpu, int* major, int* minor) {
  CALL_GPU(nvmlDeviceGetCudaComputeCapability, gpu);
  return give_pair(call.at("compute_capability"), major, minor);
}
NVML nvmlDeviceGetArchitecture(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetArchitecture, gpu);
  return give(call.at("architecture"), out);
}
NVML nvmlDeviceGetPersistenceMode(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPersistenceMode, gpu);
  return give(call.at("persistence_mode"), out);
}

// Memory and use
NVML nvmlDeviceGetMemoryInfo(void* gpu, Memory* out) {
  CALL_GPU(nvmlDeviceGetMemoryInfo, gpu);
  const JsonValue& memory = call.at("memory");
  if (give(memory.at("total"), &out->total) != kSuccess) return kNotSupported;
  give(memory.at("free"), &out->free);
  out->used = out->total - out->free;  // the first version counts what is reserved as used
  return kSuccess;
}
NVML nvmlDeviceGetMemoryInfo_v2(void* gpu, MemoryV2* out) {
  CALL_GPU(nvmlDeviceGetMemoryInfo_v2, gpu);
  if (out->version != 0x02000028) return kVersionMismatch;
  const JsonValue& memory = call.at("memory");
  if (give(memory.at("total"), &out->total) != kSuccess) return kNotSupported;
  out->reserved = 0;
  give(memory.at("reserved"), &out->reserved);
  give(memory.at("free"), &out->free);
  return give(memory.at("used"), &out->used);
}
NVML nvmlDeviceGetBAR1MemoryInfo(void* gpu, Memory* out) {
  CALL_GPU(nvmlDeviceGetBAR1MemoryInfo, gpu);
  const JsonValue& memory = call.at("bar1");
  give(memory.at("free"), &out->free);
  give(memory.at("used"), &out->used);
  return give(memory.at("total"), &out->total);
}
NVML nvmlDeviceGetUtilizationRates(void* gpu, Utilization* out) {
  CALL_GPU(nvmlDeviceGetUtilizationRates, gpu);
  return give_pair(call.at("utilization"), &out->gpu, &out->memory);
}
NVML nvmlDeviceGetEncoderUtilization(void* gpu, unsigned* out, unsigned* period_us) {
  CALL_GPU(nvmlDeviceGetEncoderUtilization, gpu);
  *period_us = 1000000;
  return give(call.at("encoder"), out);
}
NVML nvmlDeviceGetDecoderUtilization(void* gpu, unsigned* out, unsigned* period_us) {
  CALL_GPU(nvmlDeviceGetDecoderUtilization, gpu);
  *period_us = 1000000;
  return give(call.at("decoder"), out);
}

// Power, clocks, heat
NVML nvmlDeviceGetPowerUsage(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPowerUsage, gpu);
  return give(call.at("power_mw"), out);
}
NVML nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetEnforcedPowerLimit, gpu);
  return give(call.at("power_limit_mw"), out);
}
NVML nvmlDeviceGetPowerManagementLimit(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPowerManagementLimit, gpu);
  return give(call.at("power_limit_mw"), out);
}
NVML nvmlDeviceGetPowerManagementDefaultLimit(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPowerManagementDefaultLimit, gpu);
  return give(call.at("power_default_mw"), out);
}
NVML nvmlDeviceGetPowerManagementLimitConstraints(void* gpu, unsigned* least, unsigned* most) {
  CALL_GPU(nvmlDeviceGetPowerManagementLimitConstraints, gpu);
  return give_pair(call.at("power_constraints_mw"), least, most);
}
NVML nvmlDeviceGetTotalEnergyConsumption(void* gpu, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetTotalEnergyConsumption, gpu);
  return give(numbered(call.at("fields"), 83), out);
}
NVML nvmlDeviceGetClockInfo(void* gpu, unsigned domain, unsigned* out) {
  CALL_GPU(nvmlDeviceGetClockInfo, gpu);
  return give(numbered(call.at("clocks_mhz"), domain), out);
}
NVML nvmlDeviceGetMaxClockInfo(void* gpu, unsigned domain, unsigned* out) {
  CALL_GPU(nvmlDeviceGetMaxClockInfo, gpu);
  return give(numbered(call.at("max_clocks_mhz"), domain), out);
}
NVML nvmlDeviceGetPerformanceState(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPerformanceState, gpu);
  return give(call.at("performance_state"), out);
}
NVML nvmlDeviceGetCurrentClocksEventReasons(void* gpu, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetCurrentClocksEventReasons, gpu);
  return give(call.at("event_reasons"), out);
}
NVML nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, gpu);
  return give(call.at("event_reasons"), out);
}
NVML nvmlDeviceGetTemperature(void* gpu, unsigned sensor, unsigned* out) {
  CALL_GPU(nvmlDeviceGetTemperature, gpu);
  return give(numbered(call.at("temperatures"), sensor), out);
}
NVML nvmlDeviceGetTemperatureV(void* gpu, TemperatureV1* out) {
  CALL_GPU(nvmlDeviceGetTemperatureV, gpu);
  return give(numbered(call.at("temperatures"), out->sensor), &out->celsius);
}
NVML nvmlDeviceGetTemperatureThreshold(void* gpu, unsigned threshold, unsigned* out) {
  CALL_GPU(nvmlDeviceGetTemperatureThreshold, gpu);
  return give(numbered(call.at("temperature_thresholds"), threshold), out);
}
NVML nvmlDeviceGetMarginTemperature(void* gpu, MarginTemperature* out) {
  CALL_GPU(nvmlDeviceGetMarginTemperature, gpu);
  return give(call.at("temperature_margin"), &out->celsius);
}
NVML nvmlDeviceGetFanSpeed(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetFanSpeed, gpu);
  return give(call.at("fan_percent"), out);
}

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

// Links
NVML nvmlDeviceGetPcieThroughput(void* gpu, unsigned counter, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPcieThroughput, gpu);
  usleep(20000);  // the window that the real call measures over
  return give(numbered(call.at("pcie_kib_s"), counter), out);
}
NVML nvmlDeviceGetPcieReplayCounter(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetPcieReplayCounter, gpu);
  return give(numbered(call.at("fields"), 94), out);
}
NVML nvmlDeviceGetCurrPcieLinkGeneration(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetCurrPcieLinkGeneration, gpu);
  return give(call.at("pcie_generation"), out);
}
NVML nvmlDeviceGetCurrPcieLinkWidth(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetCurrPcieLinkWidth, gpu);
  return give(call.at("pcie_width"), out);
}
NVML nvmlDeviceGetNvLinkState(void* gpu, unsigned link, unsigned* out) {
  CALL_GPU(nvmlDeviceGetNvLinkState, gpu);
  const auto links = whole_of(numbered(call.at("fields"), 91));
  if (!links) return kNotSupported;
  *out = 1;
  return link < *links ? kSuccess : kInvalidArgument;
}

// Errors and health
NVML nvmlDeviceGetEccMode(void* gpu, unsigned* current, unsigned* pending) {
  CALL_GPU(nvmlDeviceGetEccMode, gpu);
  return give_pair(call.at("ecc_mode"), current, pending);
}
NVML nvmlDeviceGetTotalEccErrors(void* gpu, unsigned type, unsigned counter, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetTotalEccErrors, gpu);
  return give(call.at("ecc").at(std::to_string(type) + "/" + std::to_string(counter)), out);
}
NVML nvmlDeviceGetMemoryErrorCounter(void* gpu, unsigned type, unsigned counter, unsigned location, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetMemoryErrorCounter, gpu);
  const std::string key = std::to_string(type) + "/" + std::to_string(counter) + "/" + std::to_string(location);
  return give(call.at("ecc").at(key), out);
}
NVML nvmlDeviceGetRemappedRows(void* gpu, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                               unsigned* failure) {
  CALL_GPU(nvmlDeviceGetRemappedRows, gpu);
  const JsonValue& fields = call.at("fields");
  give(numbered(fields, 143), uncorrected);
  give(numbered(fields, 144), pending);
  give(numbered(fields, 145), failure);
  return give(numbered(fields, 142), corrected);
}
NVML nvmlDeviceGetGpuFabricInfoV(void* gpu, FabricV2* out) {
  CALL_GPU(nvmlDeviceGetGpuFabricInfoV, gpu);
  const JsonValue& fabric = call.at("fabric");
  give(fabric.at("status"), &out->status);
  give(fabric.at("clique"), &out->clique_id);
  give(fabric.at("health"), &out->health_mask);
  return give(fabric.at("state"), &out->state);
}

// MIG
NVML nvmlDeviceGetMigMode(void* gpu, unsigned* current, unsigned* pending) {
  CALL_GPU(nvmlDeviceGetMigMode, gpu);
  const JsonValue& mode = call.at("mig").at("mode");
  give(mode, pending);
  return give(mode, current);
}
NVML nvmlDeviceGetMaxMigDeviceCount(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceGetMaxMigDeviceCount, gpu);
  *out = call.at("mig").is_null() ? 0 : 7;
  return kSuccess;
}
NVML nvmlDeviceGetMigDeviceHandleByIndex(void* gpu, unsigned index, void** out) {
  CALL_GPU(nvmlDeviceGetMigDeviceHandleByIndex, gpu);
  if (index >= call.at("mig").at("instances").items.size()) return kNotFound;
  *out = device_of(call.device->key, static_cast<int>(index));
  return kSuccess;
}
NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* instance, void** out) {
  CALL_GPU(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, instance);
  *out = device_of(call.device->key, -1);
  return kSuccess;
}
NVML nvmlDeviceIsMigDeviceHandle(void* gpu, unsigned* out) {
  CALL_GPU(nvmlDeviceIsMigDeviceHandle, gpu);
  *out = call.device->mig >= 0;
  return kSuccess;
}
NVML nvmlDeviceGetGpuInstanceId(void* instance, unsigned* out) {
  CALL_GPU(nvmlDeviceGetGpuInstanceId, instance);
  return give(call.at("gpu_instance_id"), out);
}
NVML nvmlDeviceGetComputeInstanceId(void* instance, unsigned* out) {
  CALL_GPU(nvmlDeviceGetComputeInstanceId, instance);
  return give(call.at("compute_instance_id"), out);
}
NVML nvmlDeviceGetAttributes_v2(void* instance, Attributes* out) {
  CALL_GPU(nvmlDeviceGetAttributes_v2, instance);
  const JsonValue& attributes = call.at("attributes");
  std::memset(out, 0, sizeof *out);
  give(attributes.at("gpu_slices"), &out->gpu_slices);
  give(attributes.at("compute_slices"), &out->compute_slices);
  give(attributes.at("multiprocessors"), &out->multiprocessors);
  return give(attributes.at("memory_mib"), &out->memory_mib);
}

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

// Events: each of the file's comes to each set `count` times, `at_s` after the set was made.
namespace {

struct EventSet {
  uint64_t born_us = 0;
  std::map<std::string, uint64_t> types;  // by the GPU's key
  std::map<std::string, uint64_t> given;  // by the event's own text
};

bool next_event(const NodeState& state, EventSet* set, Event* out) {
  for (const JsonValue& event : state.root.at("events").items) {
    const int gpu = static_cast<int>(event.at("gpu").number);
    const std::string key = key_of(state, gpu);
    const uint64_t type = whole_of(event.at("type")).value_or(kXidCritical);
    const auto registered = set->types.find(key);
    if (registered == set->types.end() || (registered->second & type) == 0) continue;
    const double due_us = static_cast<double>(set->born_us) + event.at("at_s").number * 1e6;
    uint64_t& given = set->given[key + event.at("xid").text + "@" + event.at("at_s").text];
    if (static_cast<double>(monotonic_us()) < due_us || given >= whole_of(event.at("count")).value_or(1)) continue;
    ++given;
    *out = Event{device_of(key, -1), type, whole_of(event.at("xid")).value_or(0), UINT_MAX, UINT_MAX};
    return true;
  }
  return false;
}

}  // namespace

NVML nvmlDeviceGetSupportedEventTypes(void* gpu, uint64_t* out) {
  CALL_GPU(nvmlDeviceGetSupportedEventTypes, gpu);
  return give(call.at("event_types"), out);
}
NVML nvmlEventSetCreate(void** out) {
  CALL(nvmlEventSetCreate);
  *out = new EventSet{monotonic_us(), {}, {}};
  return kSuccess;
}
NVML nvmlDeviceRegisterEvents(void* gpu, uint64_t types, void* set) {
  CALL_GPU(nvmlDeviceRegisterEvents, gpu);
  if (call.at("event_types").is_null()) return kNotSupported;
  static_cast<EventSet*>(set)->types[call.device->key] |= types;
  return kSuccess;
}
NVML nvmlEventSetWait_v2(void* set, Event* out, unsigned timeout_ms) {
  const uint64_t until_us = monotonic_us() + timeout_ms * uint64_t{1000};
  for (;;) {
    CALL(nvmlEventSetWait_v2);
    if (next_event(*call.state, static_cast<EventSet*>(set), out)) return kSuccess;
    if (monotonic_us() >= until_us) return kTimeout;
    usleep(2000);
  }
}
NVML nvmlEventSetFree(void* set) {
  CALL(nvmlEventSetFree);
  delete static_cast<EventSet*>(set);
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
