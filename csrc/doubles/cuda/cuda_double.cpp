#include "doubles/cuda/cuda_double.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>

namespace {

struct DoubleEvent {
  uint64_t at_ns = 0;
  bool recorded = false;
};

constexpr int kNotReady = 600, kInvalidHandle = 400, kCaptureUnsupported = 900, kCaptureImplicit = 906;
constexpr int kGlobal = 0;

std::mutex g_mutex;
std::map<void*, uint64_t> g_busy_until_ns;  // by stream
std::map<void*, bool> g_capturing;
std::map<std::string, int> g_failures;
std::map<std::string, uint64_t> g_calls;
uint64_t g_broken = 0;
uint64_t g_free_bytes = uint64_t{64} << 30;
bool g_initialised = false;
thread_local void* t_context = reinterpret_cast<void*>(0x1);
thread_local int t_mode = kGlobal;

// A fork while another thread holds the lock must not leave the child with it held, as real libraries see to as well.
const int g_at_fork = pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, [] { new (&g_mutex) std::mutex; });

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Counts the call; what it must answer instead of the truth, or 0. The caller holds the lock.
int called(const char* function) {
  ++g_calls[function];
  const auto found = g_failures.find(function);
  return found == g_failures.end() ? 0 : found->second;
}

bool any_capture() {
  for (const auto& [stream, on] : g_capturing) {
    if (on) return true;
  }
  return false;
}

}  // namespace

#define CALLED(function)                         \
  std::lock_guard<std::mutex> lock(g_mutex);     \
  if (const int failure = called(#function)) return failure

PYMON_DOUBLE int cuInit(unsigned) {
  {
    CALLED(cuInit);
    if (g_initialised) return 0;
    g_initialised = true;
  }
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return 0;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* initialise = library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (initialise == nullptr) {
    std::fprintf(stderr, "cuda double: %s\n", dlerror());
    return 0;
  }
  initialise();
  return 0;
}

PYMON_DOUBLE int cuDriverGetVersion(int* version) {
  CALLED(cuDriverGetVersion);
  *version = 13000;
  return 0;
}

PYMON_DOUBLE int cuDeviceGetCount(int* count) {
  CALLED(cuDeviceGetCount);
  *count = 1;
  return 0;
}

PYMON_DOUBLE int cuCtxGetCurrent(void** context) {
  CALLED(cuCtxGetCurrent);
  *context = t_context;
  return 0;
}

PYMON_DOUBLE int cuCtxSetCurrent(void* context) {
  CALLED(cuCtxSetCurrent);
  t_context = context;
  return 0;
}

PYMON_DOUBLE int cuEventCreate(void** event, unsigned) {
  CALLED(cuEventCreate);
  *event = new DoubleEvent;  // kept for good: the driver frees it with the context
  return 0;
}

PYMON_DOUBLE int cuEventRecord(void* event, void* stream) {
  CALLED(cuEventRecord);
  auto* recorded = static_cast<DoubleEvent*>(event);
  const uint64_t now = now_ns(), busy_until = g_busy_until_ns[stream];
  recorded->at_ns = busy_until > now ? busy_until : now;
  recorded->recorded = true;
  return 0;
}

PYMON_DOUBLE int cuEventQuery(void* event) {
  CALLED(cuEventQuery);
  if (t_mode == kGlobal && any_capture()) {
    ++g_broken;
    return kCaptureUnsupported;
  }
  return now_ns() >= static_cast<DoubleEvent*>(event)->at_ns ? 0 : kNotReady;
}

PYMON_DOUBLE int cuEventElapsedTime(float* ms, void* from, void* to) {
  CALLED(cuEventElapsedTime);
  const auto *begin = static_cast<DoubleEvent*>(from), *end = static_cast<DoubleEvent*>(to);
  if (!begin->recorded || !end->recorded) return kInvalidHandle;
  *ms = static_cast<float>((static_cast<double>(end->at_ns) - static_cast<double>(begin->at_ns)) / 1e6);
  return 0;
}

PYMON_DOUBLE int cuStreamIsCapturing(void* stream, int* status) {
  CALLED(cuStreamIsCapturing);
  if (stream == nullptr && any_capture()) return kCaptureImplicit;
  *status = g_capturing[stream] ? 1 : 0;
  return 0;
}

PYMON_DOUBLE int cuThreadExchangeStreamCaptureMode(int* mode) {
  CALLED(cuThreadExchangeStreamCaptureMode);
  const int before = t_mode;
  t_mode = *mode;
  *mode = before;
  return 0;
}

PYMON_DOUBLE int cuMemGetInfo_v2(size_t* free, size_t* total) {
  CALLED(cuMemGetInfo_v2);
  *free = g_free_bytes;
  *total = size_t{80} << 30;
  return 0;
}

// What must never be called; counted, so that a test can say so.
PYMON_DOUBLE int cuEventSynchronize(void*) {
  CALLED(cuEventSynchronize);
  return 0;
}
PYMON_DOUBLE int cuStreamSynchronize(void*) {
  CALLED(cuStreamSynchronize);
  return 0;
}
PYMON_DOUBLE int cuCtxSynchronize() {
  CALLED(cuCtxSynchronize);
  return 0;
}

void cuda_double_work(void* stream, uint64_t duration_ns) {
  std::lock_guard<std::mutex> lock(g_mutex);
  uint64_t& busy_until = g_busy_until_ns[stream];
  const uint64_t now = now_ns();
  busy_until = (busy_until > now ? busy_until : now) + duration_ns;
}

void cuda_double_context(void* context) { t_context = context; }

void cuda_double_capture(void* stream, int on) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_capturing[stream] = on != 0;
}

uint64_t cuda_double_captures_broken() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_broken;
}

void cuda_double_fail(const char* function, int result) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_failures[function] = result;
}

void cuda_double_free_bytes(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_free_bytes = bytes;
}

uint64_t cuda_double_calls(const char* function) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_calls[function];
}
