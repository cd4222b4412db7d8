// What the double's node is like now: a JSON file, named by PYMON_NVML_DOUBLE and read again when it changes.
//
//   {"driver_version": "580.126.09", "nvml_version": "13.580.126.09", "cuda_version": 13000, "process_stride": 24,
//    "gpus":   [{"uuid": "GPU-...", "utilization": [91, 40], "fields": {"186": 650000}, ...}],
//    "faults": [{"function": "nvmlDeviceGetPowerUsage" or "*", "gpu": 1, "code": 3, "latency_ms": 5, "hang": true,
//                "spin": true, "crash": true}],
//    "events": [{"at_s": 0.5, "gpu": 0, "xid": 79, "count": 1}]}
//
// A reading that a GPU lacks is answered NOT_SUPPORTED. A number may also grow by itself: {"start": 5, "per_s": 2,
// "modulo": 10} is start + per_s * t (mod modulo), t being CLOCK_MONOTONIC, so that all processes see the same.
// A symbol that an old driver lacks is taken out of a copy of the library (tests/nvml/double.py).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "doubles/nvml/json_value.h"

namespace pymon::doubles {

struct NodeState {
  JsonValue root;

  size_t gpu_count() const { return root.at("gpus").items.size(); }
  const JsonValue& gpu(int index) const;  // null where it is not there (any more)
};

// The newest state; the one before stays for those who hold it.
std::shared_ptr<const NodeState> node_state();

// The number now; nothing where the value is no number.
std::optional<double> number_of(const JsonValue& value);
std::optional<uint64_t> whole_of(const JsonValue& value);

uint64_t monotonic_us();

// Obeys the faults of this call: waits, hangs for good, and gives the code to answer, or 0. `gpu` is -1 for calls about
// no GPU; `mig` is the instance or -1.
int fault_of(const NodeState& state, const char* function, int gpu, int mig = -1);

}  // namespace pymon::doubles
