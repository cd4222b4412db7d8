// The part of NVML's ABI that the double speaks, in own words: sizes and orders of fields only. They are the ones that
// nvidia-ml-py declares; tests/nvml/test_double.py calls every entry point through it.
#pragma once

#include <cstdint>

namespace pymon::doubles {

enum NvmlReturn : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kTimeout = 10,
  kGpuIsLost = 15,
  kVersionMismatch = 25,
};

struct Memory {
  uint64_t total, free, used;
};
struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
struct Utilization {
  uint32_t gpu, memory;
};
struct Pci {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
union Value {
  double as_double;
  uint32_t as_u32;
  uint64_t as_u64;
};
enum ValueType : uint32_t { kTypeDouble = 0, kTypeU32 = 1, kTypeU64 = 3 };
struct FieldValue {
  uint32_t field_id, scope_id;
  int64_t timestamp_us, latency_us;
  uint32_t value_type;
  int32_t result;
  Value value;
};
struct TemperatureV1 {
  uint32_t version, sensor;
  int32_t celsius;
};
struct MarginTemperature {
  uint32_t version;
  int32_t celsius;
};
struct ProcessSample {
  uint32_t pid;
  uint64_t timestamp_us;
  uint32_t sm, memory, encoder, decoder;
};
struct Event {
  void* device;
  uint64_t type, data;
  uint32_t gpu_instance_id, compute_instance_id;
};
struct Attributes {
  uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
  uint64_t memory_mib;
};
struct FabricV2 {
  uint32_t version;
  uint8_t cluster_uuid[16];
  int32_t status;
  uint32_t clique_id;
  uint8_t state;
  uint32_t health_mask;
};
struct GpmSupport {
  uint32_t version, supported;
};
struct GpmMetric {
  uint32_t id;
  int32_t result;
  double value;
  const char* short_name;
  const char* long_name;
  const char* unit;
};
struct GpmSample;
struct GpmMetrics {
  uint32_t version, count;
  GpmSample *first, *second;
  GpmMetric metrics[1];
};

static_assert(sizeof(MemoryV2) == 40 && sizeof(FieldValue) == 40 && sizeof(Event) == 32 && sizeof(GpmMetric) == 40);

}  // namespace pymon::doubles
