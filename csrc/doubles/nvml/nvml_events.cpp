#include <unistd.h>

#include <climits>
#include <map>

#include "doubles/nvml/call.h"

using namespace pymon::doubles;

// Events: each of the file's comes to each set `count` times, `at_s` after the set was made. A fault of a GPU fails the
// wait for every set that holds it.
namespace {

constexpr uint64_t kXidCritical = 8;

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
    for (const auto& registered : static_cast<EventSet*>(set)->types) {
      const int gpu = index_of(*call.state, registered.first);
      if (const int failure = fault_of(*call.state, "nvmlEventSetWait_v2", gpu)) return failure;
    }
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
