#include "doubles/nvml/node_state.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>

namespace pymon::doubles {
namespace {

constexpr uint64_t kLookAgainUs = 5000;  // a stat per call would be most of what a call costs

std::mutex g_mutex;
std::shared_ptr<const NodeState> g_state = std::make_shared<NodeState>();
uint64_t g_looked_us = 0;
uint64_t g_version = 0;  // of the file, by time of change, size and inode

uint64_t version_of(const struct stat& found) {
  const auto changed_ns = static_cast<uint64_t>(found.st_mtim.tv_sec) * 1000000000u +
                          static_cast<uint64_t>(found.st_mtim.tv_nsec);
  return changed_ns ^ (static_cast<uint64_t>(found.st_size) << 40) ^ (static_cast<uint64_t>(found.st_ino) << 20);
}

void look(uint64_t now_us) {
  if (g_looked_us != 0 && now_us - g_looked_us < kLookAgainUs) return;
  g_looked_us = now_us;
  const char* path = std::getenv("PYMON_NVML_DOUBLE");
  struct stat found;
  if (path == nullptr || stat(path, &found) != 0 || version_of(found) == g_version) return;
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (auto root = parse_json(text)) {  // half a file is read again once it is whole
    g_version = version_of(found);
    g_state = std::make_shared<const NodeState>(NodeState{std::move(*root)});
  }
}

}  // namespace

const JsonValue& NodeState::gpu(int index) const {
  static const JsonValue none;
  const auto& gpus = root.at("gpus").items;
  return index >= 0 && static_cast<size_t>(index) < gpus.size() ? gpus[static_cast<size_t>(index)] : none;
}

uint64_t monotonic_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000u + static_cast<uint64_t>(now.tv_nsec) / 1000u;
}

std::shared_ptr<const NodeState> node_state() {
  std::lock_guard<std::mutex> lock(g_mutex);
  look(monotonic_us());
  return g_state;
}

std::optional<double> number_of(const JsonValue& value) {
  if (value.kind == JsonValue::Kind::kNumber) return value.number;
  if (value.kind != JsonValue::Kind::kObject || value.at("per_s").is_null()) return std::nullopt;
  const double grown = value.at("per_s").number * static_cast<double>(monotonic_us()) / 1e6;
  const double modulo = value.at("modulo").number;
  return value.at("start").number + (modulo > 0 ? std::fmod(grown, modulo) : grown);
}

std::optional<uint64_t> whole_of(const JsonValue& value) {
  if (value.kind == JsonValue::Kind::kNumber && value.text.find_first_of(".eE-") == std::string::npos) {
    return std::strtoull(value.text.c_str(), nullptr, 10);
  }
  const auto number = number_of(value);
  if (!number) return std::nullopt;
  return *number < 0 ? static_cast<uint64_t>(static_cast<int64_t>(*number)) : static_cast<uint64_t>(*number);
}

int fault_of(const NodeState& state, const char* function, int gpu, int mig) {
  for (const JsonValue& fault : state.root.at("faults").items) {
    const std::string& wanted = fault.at("function").text;
    if (wanted != "*" && wanted != function) continue;
    if (!fault.at("gpu").is_null() && static_cast<int>(fault.at("gpu").number) != gpu) continue;
    if (!fault.at("mig").is_null() && static_cast<int>(fault.at("mig").number) != mig) continue;
    if (fault.at("latency_ms").number > 0) usleep(static_cast<useconds_t>(fault.at("latency_ms").number * 1000));
    if (fault.at("crash").number != 0) std::raise(SIGSEGV);
    if (fault.at("spin").number != 0) {
      for (volatile uint64_t spins = 0;; spins = spins + 1) {
      }
    }
    while (fault.at("hang").number != 0) pause();  // for good: the state of this call is never looked at again
    if (fault.at("code").number != 0) return static_cast<int>(fault.at("code").number);
  }
  return 0;
}

}  // namespace pymon::doubles
