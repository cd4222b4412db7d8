// A libnvidia-ml.so.1 whose GPUs are what a JSON file says. Built for tests only, never installed. See node_state.h.
//
// Like the driver's library it refuses every call before nvmlInit, forgets its handles at nvmlShutdown, answers a GPU
// that is not there any more GPU_IS_LOST, and a reading that a GPU lacks NOT_SUPPORTED. This file: the library, who the
// GPUs are, their readings. nvml_fields.cpp: field values and GPM. nvml_processes.cpp: processes. nvml_events.cpp: events.

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "doubles/nvml/call.h"

using namespace pymon::doubles;

// By which pymon tells a double from a driver.
extern "C" __attribute__((visibility("default"))) const char pymon_nvml_double[] = "nvml";

NVML nvmlInitWithFlags(unsigned) {
  if (const int failure = fault_of(*node_state(), "nvmlInitWithFlags", -1)) return failure;
  bring_library_up();
  return kSuccess;
}
NVML nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML nvmlShutdown() {
  if (const int failure = fault_of(*node_state(), "nvmlShutdown", -1)) return failure;
  return shut_library_down() ? kSuccess : kUninitialized;
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
