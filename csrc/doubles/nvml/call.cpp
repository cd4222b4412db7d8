#include "doubles/nvml/call.h"

#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace pymon::doubles {
namespace {

std::mutex g_mutex;
int g_inits = 0;
int g_generation = 0;
std::map<std::pair<std::string, int>, Device*> g_devices;  // by key and instance, of this generation

}  // namespace

bool library_is_up() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_inits > 0;
}

void bring_library_up() {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_inits++ > 0) return;
  ++g_generation;
  g_devices.clear();
}

bool shut_library_down() {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_inits == 0) return false;
  --g_inits;
  return true;
}

std::string key_of(const NodeState& state, int index) {
  const std::string& uuid = state.gpu(index).at("uuid").text;
  return uuid.empty() ? "#" + std::to_string(index) : uuid;
}

int index_of(const NodeState& state, const std::string& key) {
  for (int index = 0; index < static_cast<int>(state.gpu_count()); ++index) {
    if (key_of(state, index) == key) return index;
  }
  return -1;
}

Device* device_of(const std::string& key, int mig) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Device*& found = g_devices[{key, mig}];
  if (found == nullptr) found = new Device{key, mig, g_generation};
  return found;
}

Call::Call(const char* function) : failure(library_is_up() ? fault_of(*state, function, -1) : kUninitialized) {}

Call::Call(const char* function, void* handle) : device(static_cast<const Device*>(handle)) {
  if (device == nullptr) std::raise(SIGSEGV);  // as in the driver's library (XuehaiPan/nvitop#139)
  if (!library_is_up()) {
    failure = kUninitialized;
  } else if (device->generation != g_generation) {
    failure = kInvalidArgument;
  } else {
    index = index_of(*state, device->key);
    failure = fault_of(*state, function, index, device->mig);
    if (failure == 0 && index < 0) failure = kGpuIsLost;
    gpu = &state->gpu(index);
    if (device->mig >= 0) resolve_instance();
  }
}

void Call::resolve_instance() {
  const auto& instances = gpu->at("mig").at("instances").items;
  if (static_cast<size_t>(device->mig) < instances.size()) {
    gpu = &instances[static_cast<size_t>(device->mig)];
  } else if (failure == 0) {
    failure = kInvalidArgument;  // the instance was destroyed
  }
}

int give_text(const JsonValue& value, char* out, unsigned size) {
  if (value.is_null()) return kNotSupported;
  if (value.text.size() + 1 > size) return kInsufficientSize;
  std::memcpy(out, value.text.c_str(), value.text.size() + 1);
  return kSuccess;
}

const JsonValue& numbered(const JsonValue& value, uint64_t number) { return value.at(std::to_string(number)); }

}  // namespace pymon::doubles
