#include "doubles/cupti/cupti_double.h"

#include <time.h>

#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "doubles/cupti/scripted.h"
#include "gpu/cupti_abi.h"

namespace {

using namespace pymon::cupti;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

struct Lent {
  uint8_t* bytes = nullptr;
  size_t size = 0, used = 0, records = 0, most = 0;
};

std::recursive_mutex g_mutex;  // CUPTI's own lock, which it holds over the callbacks
BufferRequested g_requested = nullptr;
BufferCompleted g_completed = nullptr;
std::set<uint32_t> g_kinds;
Lent g_lent;
int g_subscriber_tag;
bool g_subscribed = false, g_zeroed_by_us = false;
size_t g_dropped = 0;
uint64_t g_gpu_ns = 0;
uint32_t g_correlation = 1, g_device = 0;
Kernel* g_running = nullptr;
std::map<std::string, const char*> g_names;
std::map<std::string, uint64_t> g_calls;
uint64_t (*g_timestamp)() = nullptr;
std::map<std::string, uint32_t> g_slow_ms;
uint64_t g_records = 0;
uint64_t g_registrations = 0, g_records_in_old_clock = 0;
double g_ticks_per_ns = 1.0;

// As in the double of libcuda.
const int g_at_fork =
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, [] { new (&g_mutex) std::recursive_mutex; });

uint32_t version() {
  static const uint32_t number = [] {
    const char* text = std::getenv("DOUBLE_CUPTI_VERSION");
    return text == nullptr ? 130001u : static_cast<uint32_t>(std::atoi(text));
  }();
  return number;
}

int failure(const char* function) { return scripted("DOUBLE_CUPTI_FAIL", function); }

size_t record_bytes(uint32_t kind) {
  const uint32_t number = version();
  switch (kind) {
    case kConcurrentKernel:
    case kKernel:
      return number < 130000 ? 208 : number < 130100 ? 216 : number < 130300 ? 224 : number < 130400 ? 232 : 248;
    case kMemcpy:
      return number < 26 ? 88 : number < 130400 ? 96 : 112;
    case kMemcpyPeer:
      return 96;
    case kMemset:
      return number < 130400 ? 88 : 104;
    case kSynchronization:
      return number < 26 ? 40 : 56;
    default:
      return 0;
  }
}

void give_back() {
  if (g_lent.bytes == nullptr) return;
  const Lent lent = g_lent;
  g_lent = Lent{};
  if (g_completed != nullptr) g_completed(nullptr, 0, lent.bytes, lent.size, lent.used);
}

// Room for a record of this kind, or nullptr. The caller holds the lock.
template <typename Record>
Record* new_record(uint32_t kind) {
  if (g_kinds.count(kind) == 0) return nullptr;
  const size_t bytes = record_bytes(kind);
  if (g_lent.bytes != nullptr &&
      (g_lent.used + bytes > g_lent.size || (g_lent.most != 0 && g_lent.records >= g_lent.most))) {
    give_back();
  }
  if (g_lent.bytes == nullptr) {
    Lent lent;
    if (g_requested != nullptr) g_requested(&lent.bytes, &lent.size, &lent.most);
    if (lent.bytes == nullptr) {
      ++g_dropped;
      return nullptr;
    }
    if (!g_zeroed_by_us) std::memset(lent.bytes, 0, lent.size);
    g_lent = lent;
  }
  uint8_t* at = g_lent.bytes + g_lent.used;
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != 0) {
      std::fprintf(stderr, "cupti double: the buffer is not zeroed\n");
      std::abort();
    }
  }
  g_lent.used += bytes;
  ++g_lent.records;
  ++g_records;
  auto* record = reinterpret_cast<Record*>(at);
  record->kind = kind;
  return record;
}

const char* interned(const std::string& name) {
  const char*& kept = g_names[name];
  if (kept == nullptr) kept = strdup(name.c_str());  // as CUPTI does: never freed
  return kept;
}

template <typename Record>
void set_times(Record* record, uint64_t begin_ns, uint64_t duration_ns) {
  record->start = begin_ns;
  record->end = begin_ns + duration_ns;
  if (g_timestamp == nullptr) return;
  if (g_records_in_old_clock > 0) {
    --g_records_in_old_clock;
    return;
  }
  const uint64_t now = now_ns(), ticks = g_timestamp();
  record->start = ticks - static_cast<uint64_t>(static_cast<int64_t>(
                              static_cast<double>(static_cast<int64_t>(now - begin_ns)) * g_ticks_per_ns));
  record->end = record->start + static_cast<uint64_t>(static_cast<double>(duration_ns) * g_ticks_per_ns);
}

void add_kernel(const std::string& name, uint64_t begin_ns, uint64_t duration_ns, uint32_t stream, uint32_t graph) {
  auto* kernel = new_record<Kernel>(kConcurrentKernel);
  if (kernel == nullptr) return;
  set_times(kernel, begin_ns, duration_ns);
  kernel->stream = stream;
  kernel->device = g_device;
  kernel->context = 1;
  kernel->graph = graph;
  kernel->name = interned(name);
  kernel->correlation = g_correlation;
}

class Player {
 public:
  void play(const std::string& script) {
    {
      std::lock_guard<std::recursive_mutex> lock(g_mutex);
      if (g_gpu_ns == 0) g_gpu_ns = now_ns();
      begin_ns_ = g_gpu_ns;
    }
    std::istringstream lines(script);
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string word;
      if (words >> word) play_line(word, words);
    }
  }

 private:
  void play_line(const std::string& word, std::istringstream& words) {
    std::string name;
    uint64_t bytes = 0, duration_ns = 0, gap_ns = 0;
    uint32_t stream = 0;
    long count = 0;
    if (word == "kernel" || word == "graph") {
      words >> name >> duration_ns >> gap_ns >> stream >> count;
      const bool graph = word == "graph";
      each(graph ? 1 : count, [&] {
        for (long i = 0; i < (graph ? count : 1); ++i) {
          g_gpu_ns += gap_ns;
          add_kernel(name, g_gpu_ns, duration_ns, stream, graph ? 9 : 0);
          g_gpu_ns += duration_ns;
        }
        ++g_correlation;
      });
    } else if (word == "mixed") {
      uint32_t other = 0;
      words >> name >> duration_ns >> stream >> other >> count;
      each(1, [&] {
        const uint32_t first = g_correlation;
        for (long i = 0; i < 2 * count; ++i) {
          g_correlation = first + static_cast<uint32_t>(i % 2);
          add_kernel(name, g_gpu_ns, duration_ns, i % 2 == 0 ? stream : other, 9);
          if (i % 2 == 1) g_gpu_ns += duration_ns;
        }
        g_correlation = first + 2;
      });
    } else if (word == "at") {
      words >> name >> gap_ns >> duration_ns >> stream;
      each(1, [&] {
        add_kernel(name, begin_ns_ + gap_ns, duration_ns, stream, 0);
        ++g_correlation;
      });
    } else if (word == "copy") {
      words >> name >> bytes >> duration_ns >> count;
      each(count, [&] { add_copy(name, bytes, duration_ns); });
    } else if (word == "set") {
      words >> bytes >> duration_ns >> count;
      each(count, [&] {
        auto* set = new_record<Memset>(kMemset);
        if (set == nullptr) return;
        set->bytes = bytes;
        set->device = g_device;
        set_times(set, g_gpu_ns, duration_ns);
        g_gpu_ns += duration_ns;
      });
    } else if (word == "sync") {
      words >> name >> duration_ns >> count;
      each(count, [&] {
        auto* sync = new_record<Synchronization>(kSynchronization);
        if (sync == nullptr) return;
        sync->type = name == "event" ? kSyncEvent : name == "wait" ? kSyncStreamWaitEvent : name == "stream" ? kSyncStream : kSyncContext;
        set_times(sync, now_ns(), duration_ns);
      });
    } else if (word == "open") {
      words >> name;
      each(1, [&] {
        g_running = new_record<Kernel>(kConcurrentKernel);
        if (g_running != nullptr) g_running->name = interned(name);
      });
    } else if (word == "close") {
      each(1, [&] {
        if (g_running == nullptr) return;
        set_times(g_running, g_gpu_ns, 1000);
        g_gpu_ns += 1000;
        g_running = nullptr;
      });
    } else if (word == "zero" || word == "bad") {
      words >> name >> count;
      each(count, [&] {
        auto* kernel = new_record<Kernel>(kConcurrentKernel);
        if (kernel == nullptr) return;
        kernel->name = interned(name);
        if (word == "bad") kernel->start = 5000, kernel->end = 4000;
      });
    } else if (word == "device") {
      words >> stream;
      each(1, [&] { g_device = stream; });
    } else if (word == "drop") {
      words >> count;
      each(1, [&] { g_dropped += static_cast<size_t>(count); });
    } else if (word == "sleep") {
      words >> count;
      sleep_ns(static_cast<uint64_t>(count) * 1000000u);
      next_ns_ = now_ns();
    } else if (word == "rate") {
      words >> rate_;
      next_ns_ = now_ns();
    } else {
      std::fprintf(stderr, "cupti double: no such line: %s\n", word.c_str());
      std::abort();
    }
  }

  static void add_copy(const std::string& direction, uint64_t bytes, uint64_t duration_ns) {
    const auto fill = [&](auto* copy) {
      if (copy == nullptr) return;
      copy->bytes = bytes;
      copy->device = g_device;
      set_times(copy, g_gpu_ns, duration_ns);
      g_gpu_ns += duration_ns;
    };
    if (direction == "p2p") {
      fill(new_record<MemcpyPeer>(kMemcpyPeer));
      return;
    }
    auto* copy = new_record<Memcpy>(kMemcpy);
    fill(copy);
    if (copy != nullptr) {
      copy->copy_kind = direction == "h2d" ? kHostToDevice : direction == "d2h" ? kDeviceToHost : kDeviceToDevice;
    }
  }

  template <typename Add>
  void each(long count, Add add) {
    for (long i = 0; i < count; ++i) {
      {
        std::lock_guard<std::recursive_mutex> lock(g_mutex);
        add();
      }
      if (rate_ <= 0) continue;
      next_ns_ += static_cast<uint64_t>(1e9 / rate_);
      const uint64_t now = now_ns();
      if (next_ns_ > now + 50000) sleep_ns(next_ns_ - now);
    }
  }

  static void sleep_ns(uint64_t ns) {
    const timespec time{static_cast<time_t>(ns / 1000000000u), static_cast<long>(ns % 1000000000u)};
    nanosleep(&time, nullptr);
  }

  double rate_ = 0;
  uint64_t next_ns_ = 0, begin_ns_ = 0;
};

void play_script_of_environment() {
  static bool played = false;
  const char* path = std::getenv("DOUBLE_CUPTI_SCRIPT");
  if (path == nullptr || played) return;
  played = true;
  std::string script;
  if (FILE* file = std::fopen(path, "r")) {
    char part[4096];
    while (const size_t bytes = std::fread(part, 1, sizeof part, file)) script.append(part, bytes);
    std::fclose(file);
  }
  std::thread([script] { Player().play("sleep 20\n" + script); }).detach();
}

}  // namespace

namespace {

// Counts the call, and is as slow as it was told to be.
void begin_call(const char* function) {
  uint32_t ms = 0;
  {
    std::lock_guard<std::recursive_mutex> lock(g_mutex);
    ++g_calls[function];
    const auto found = g_slow_ms.find(function);
    if (found != g_slow_ms.end()) ms = found->second;
  }
  if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

}  // namespace

#define CALLED(function)                                   \
  begin_call(#function);                                   \
  std::lock_guard<std::recursive_mutex> lock(g_mutex);     \
  if (const int result = failure(#function)) return result

PYMON_DOUBLE int cuptiGetVersion(uint32_t* number) {
  CALLED(cuptiGetVersion);
  *number = version();
  return 0;
}

PYMON_DOUBLE int cuptiGetResultString(int result, const char** text) {
  switch (result) {
    case kSuccess: *text = "CUPTI_SUCCESS"; break;
    case kMaxLimitReached: *text = "CUPTI_ERROR_MAX_LIMIT_REACHED"; break;
    case kNotInitialized: *text = "CUPTI_ERROR_NOT_INITIALIZED"; break;
    case kInsufficientPrivileges: *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"; break;
    case kMultipleSubscribers: *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"; break;
    default: *text = "CUPTI_ERROR_UNKNOWN";
  }
  return 0;
}

PYMON_DOUBLE int cuptiGetTimestamp(uint64_t* timestamp) {
  CALLED(cuptiGetTimestamp);
  *timestamp = g_timestamp == nullptr ? now_ns() : g_timestamp();
  return 0;
}

PYMON_DOUBLE int cuptiActivityRegisterTimestampCallback(uint64_t (*callback)()) {
  CALLED(cuptiActivityRegisterTimestampCallback);
  g_timestamp = callback;
  ++g_registrations;
  return 0;
}

PYMON_DOUBLE int cuptiActivityRegisterCallbacks(BufferRequested requested, BufferCompleted completed) {
  CALLED(cuptiActivityRegisterCallbacks);
  if (requested == nullptr || completed == nullptr) return kInvalidParameter;
  g_requested = requested;
  g_completed = completed;
  play_script_of_environment();
  return 0;
}

PYMON_DOUBLE int cuptiActivityEnable(uint32_t kind) {
  CALLED(cuptiActivityEnable);
  if (record_bytes(kind) == 0) return kInvalidKind;
  const bool begins = g_kinds.insert(kind).second;
  if (begins && kind == kConcurrentKernel && g_registrations > 1) g_records_in_old_clock = g_registrations - 1;
  return 0;
}

PYMON_DOUBLE int cuptiActivityDisable(uint32_t kind) {
  CALLED(cuptiActivityDisable);
  g_kinds.erase(kind);
  return 0;
}

PYMON_DOUBLE int cuptiActivityFlushAll(uint32_t flag) {
  CALLED(cuptiActivityFlushAll);
  if (g_completed == nullptr) return kUnknown;
  if ((flag & kFlushForced) != 0) g_running = nullptr;
  if (g_running == nullptr) give_back();
  return 0;
}

PYMON_DOUBLE int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, Activity** record) {
  if (buffer == nullptr) return kInvalidParameter;
  uint8_t* next = buffer;
  if (*record != nullptr) {
    const size_t bytes = record_bytes((*record)->kind);
    if (bytes == 0) return kInvalidKind;
    next = reinterpret_cast<uint8_t*>(*record) + bytes;
  }
  if (next >= buffer + valid_bytes) return kMaxLimitReached;
  *record = reinterpret_cast<Activity*>(next);
  return 0;
}

PYMON_DOUBLE int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  CALLED(cuptiActivityGetNumDroppedRecords);
  *dropped = g_dropped;
  g_dropped = 0;
  return 0;
}

PYMON_DOUBLE int cuptiActivitySetAttribute(uint32_t attribute, size_t*, void* value) {
  CALLED(cuptiActivitySetAttribute);
  if (attribute == kZeroedOutActivityBuffer) g_zeroed_by_us = *static_cast<uint8_t*>(value) != 0;
  return 0;
}

PYMON_DOUBLE int cuptiActivityEnableAllSyncRecords(uint8_t) {
  CALLED(cuptiActivityEnableAllSyncRecords);
  return version() < 26 ? kNotCompatible : 0;
}

PYMON_DOUBLE int cuptiSubscribe(void** subscriber, void (*)(void*, int, uint32_t, const void*), void*) {
  CALLED(cuptiSubscribe);
  if (g_subscribed) return kMultipleSubscribers;
  g_subscribed = true;
  *subscriber = &g_subscriber_tag;
  return 0;
}

PYMON_DOUBLE int cuptiUnsubscribe(void*) {
  CALLED(cuptiUnsubscribe);
  g_subscribed = false;
  return 0;
}

PYMON_DOUBLE int cuptiFinalize() {
  CALLED(cuptiFinalize);
  return 0;
}

void cupti_double_play(const char* script) { Player().play(script); }

uint64_t cupti_double_calls(const char* function) {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  return g_calls[function];
}

void cupti_double_tick(double ticks_per_ns) {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  g_ticks_per_ns = ticks_per_ns;
}

void cupti_double_rename(const char* from, const char* to) {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  const auto found = g_names.find(from);
  if (found != g_names.end()) std::strcpy(const_cast<char*>(found->second), to);
}

uint64_t cupti_double_records() {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  return g_records;
}

void cupti_double_slow(const char* function, uint32_t ms) {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  g_slow_ms[function] = ms;
}

uint32_t cupti_double_enabled_kinds() {
  std::lock_guard<std::recursive_mutex> lock(g_mutex);
  return static_cast<uint32_t>(g_kinds.size());
}

size_t cupti_double_fill(uint8_t* buffer, size_t bytes, const char* const* names, const uint32_t* order, size_t orders,
                         size_t* records) {
  const size_t stride = record_bytes(kConcurrentKernel);
  size_t used = 0, count = 0;
  uint64_t at_ns = now_ns();
  for (; used + stride <= bytes; used += stride, ++count) {
    auto* kernel = reinterpret_cast<Kernel*>(buffer + used);
    std::memset(static_cast<void*>(kernel), 0, stride);
    kernel->kind = kConcurrentKernel;
    kernel->name = names[order[count % orders]];
    kernel->stream = count % 8 == 7 ? 13 : 7;
    kernel->start = at_ns;
    at_ns += 1000 + (count * 7919) % 90000;
    kernel->end = at_ns;
    at_ns += 500;
  }
  *records = count;
  return used;
}
