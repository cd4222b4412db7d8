// One call into the double: is the library up, is the handle alive, what does the file say, which fault is planted.
#pragma once

#include <memory>
#include <string>

#include "doubles/nvml/node_state.h"
#include "doubles/nvml/nvml_abi.h"

#define NVML extern "C" __attribute__((visibility("default"))) int

namespace pymon::doubles {

// A handle: a GPU by its UUID, or one of its MIG instances. Handles live for ever, so that a stale one is seen as such.
struct Device {
  std::string key;
  int mig = -1;
  int generation = 0;
};

std::string key_of(const NodeState& state, int index);
int index_of(const NodeState& state, const std::string& key);  // -1 where it is gone
Device* device_of(const std::string& key, int mig);            // of this generation of handles

bool library_is_up();
void bring_library_up();
bool shut_library_down();  // false where it was not up

struct Call {
  std::shared_ptr<const NodeState> state = node_state();
  const Device* device = nullptr;
  const JsonValue* gpu = nullptr;  // the instance where the handle is one
  int index = -1;
  int failure = 0;  // the code to answer, or 0

  explicit Call(const char* function);       // about no GPU
  Call(const char* function, void* handle);  // about a GPU or an instance

  const JsonValue& at(const char* key) const { return gpu->at(key); }

 private:
  void resolve_instance();
};

#define CALL(function)        \
  const Call call(#function); \
  if (call.failure != 0) return call.failure

#define CALL_GPU(function, handle)    \
  const Call call(#function, handle); \
  if (call.failure != 0) return call.failure

int give_text(const JsonValue& value, char* out, unsigned size);

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

const JsonValue& numbered(const JsonValue& value, uint64_t number);

}  // namespace pymon::doubles
