// A double of Kineto's use of CUPTI, call for call as its CuptiActivityApi: subscribes once, and for each capture registers
// a timestamp callback that reads ticks and its own pair of buffer callbacks.
#pragma once

#include <ctime>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "gpu/cupti_abi.h"

extern "C" {
int cuptiSubscribe(void** subscriber, void (*callback)(void*, int, uint32_t, const void*), void* user);
int cuptiActivityRegisterTimestampCallback(uint64_t (*callback)());
int cuptiActivityRegisterCallbacks(pymon::cupti::BufferRequested, pymon::cupti::BufferCompleted);
int cuptiActivityEnable(uint32_t kind);
int cuptiActivityDisable(uint32_t kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivitySetAttribute(uint32_t attribute, size_t* bytes, void* value);
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, pymon::cupti::Activity** record);
}

namespace kineto_double {

constexpr double kTicksPerNs = 2.45;
constexpr uint32_t kKinds[] = {10, 1, 2, 38};

inline std::mutex mutex;
inline std::set<uint8_t*> lent;
inline uint64_t records = 0, unknown_buffers = 0;
inline bool cpu_only = false;  // subscribing failed once: no GPU events for the rest of the process

inline uint64_t ticks() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto since_ns = static_cast<double>(now.tv_sec % 1000000) * 1e9 + static_cast<double>(now.tv_nsec);
  return 70000000000000u + static_cast<uint64_t>(since_ns * kTicksPerNs);
}

inline void requested(uint8_t** buffer, size_t* bytes, size_t* most) {
  constexpr size_t kBytes = size_t{1} << 20;
  auto* made = static_cast<uint8_t*>(std::malloc(kBytes));
  std::memset(made, 0xAA, kBytes);  // as Kineto's: what was there before
  std::lock_guard<std::mutex> lock(mutex);
  lent.insert(made);
  *buffer = made;
  *bytes = kBytes;
  *most = 0;
}

inline void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (lent.erase(buffer) == 0) {
    ++unknown_buffers;  // its records are lost
    static auto* leaked = new std::set<uint8_t*>;  // and, in Kineto, its memory too
    leaked->insert(buffer);
    return;
  }
  pymon::cupti::Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == 0) ++records;
  std::free(buffer);
}

inline void start(bool with_ticks) {
  static const bool subscribed = [] {
    void* subscriber = nullptr;
    return cuptiSubscribe(&subscriber, nullptr, nullptr) == 0;
  }();
  cpu_only = !subscribed;
  if (cpu_only) return;
  if (with_ticks) cuptiActivityRegisterTimestampCallback(&ticks);
  cuptiActivityRegisterCallbacks(&requested, &completed);
  for (const uint32_t kind : kKinds) cuptiActivityEnable(kind);
}

inline void stop() {
  if (cpu_only) return;
  cuptiActivityFlushAll(1);
  for (const uint32_t kind : kKinds) cuptiActivityDisable(kind);
  uint8_t off = 0;
  size_t bytes = sizeof off;
  cuptiActivitySetAttribute(9, &bytes, &off);
}

}  // namespace kineto_double
