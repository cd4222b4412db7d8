#include "gpu/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace pymon {
namespace {

constexpr const char* kCudaName = "libcuda.so.1";
constexpr const char* kCuptiNames[] = {"libcupti.so.13", "libcupti.so.12"};
constexpr int kCudaOf[] = {13000, 12000};  // the driver they need, as cuDriverGetVersion says it

// The oldest whose records were held against NVIDIA's headers (tests/native/abi.cpp).
constexpr uint32_t kOldestCupti = 22;  // CUDA 12.4
// Its cudaDeviceSynchronize makes no records, and disabling kernels can deadlock; fixed in 13.0 Update 1.
constexpr uint32_t kBrokenCupti = 130000;
// Before it, a refused buffer can crash CUPTI (Kineto #1534).
constexpr uint32_t kFirstThatTakesNoBuffer = 27;  // CUDA 12.9

// A variable that another tool sets in the processes it watches. An empty `part` matches every value but none and 0.
struct Sign {
  const char* variable;
  const char* part;
  const char* tool;
};
constexpr Sign kSigns[] = {
    {"NSYS_PROFILING_SESSION_ID", "", "Nsight Systems is profiling this process"},
    {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "", "an Nsight tool is attached to this process"},
    {"CUDA_INJECTION64_PATH", "sanitizer", "compute-sanitizer is checking this process"},
    {"TEARDOWN_CUPTI", "1", "TEARDOWN_CUPTI=1: torch takes CUPTI down after each of its captures"},
};
constexpr const char* kInjection = "CUDA_INJECTION64_PATH";
constexpr const char* kOurInjection = "libpymon_inject";

const char* set_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' || std::strcmp(value, "0") == 0 || std::strcmp(value, "none") == 0
             ? nullptr
             : value;
}

void* open_library(const char* name, Loading loading) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr || loading == Loading::kOnlyLoaded ? library : dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// To be asked right after `open_library` found nothing.
std::string why_not(const char* what, Loading loading) {
  if (loading == Loading::kOnlyLoaded) return std::string(what) + " is not loaded in this process";
  const char* error = dlerror();
  return error == nullptr ? std::string(what) + " cannot be loaded" : error;
}

Error no_driver(const std::string& why) { return Error::because("no NVIDIA driver (" + why + ")"); }

// The driver's library. Not the stub of it that toolkits bring for linking, whose calls all fail: real CUPTI crashes on
// that one as it does on none. cuDriverGetVersion is the one question that initialises nothing.
struct Driver {
  void* library;
  int version;
};

Result<Driver> open_driver(Loading loading) {
  void* library = open_library(kCudaName, loading);
  if (library == nullptr) return no_driver(why_not(kCudaName, loading));
  decltype(cuda::Api::cuDriverGetVersion) get_version = nullptr;
  int version = 0;
  if (!find(library, "cuDriverGetVersion", &get_version)) return no_driver("libcuda.so.1 lacks cuDriverGetVersion");
  if (const cuda::Result result = get_version(&version); result != cuda::kSuccess) {
    return no_driver("libcuda.so.1: cuDriverGetVersion fails with error " + std::to_string(result));
  }
  return Driver{library, version};
}

// The one that is there already; else, if it may be loaded, the newest that this driver can serve.
void* open_cupti(const Driver& driver, Loading loading) {
  for (const char* name : kCuptiNames) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  for (size_t i = 0; i < std::size(kCuptiNames); ++i) {
    if (driver.version < kCudaOf[i]) continue;
    if (void* library = open_library(kCuptiNames[i], loading)) return library;
  }
  return nullptr;
}

// The name of whoever debugs this process; cuda-gdb takes the GPU's debugging interface for itself.
bool is_under_cuda_gdb() {
  char text[4096] = {};
  const int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (status < 0) return false;
  const ssize_t size = read(status, text, sizeof text - 1);
  close(status);
  const char* tracer = size > 0 ? std::strstr(text, "TracerPid:") : nullptr;
  const long pid = tracer == nullptr ? 0 : std::strtol(tracer + std::strlen("TracerPid:"), nullptr, 10);
  if (pid <= 0) return false;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/comm", pid);
  const int comm = open(path, O_RDONLY | O_CLOEXEC);
  if (comm < 0) return false;
  char name[32] = {};
  const bool known = read(comm, name, sizeof name - 1) > 0;
  close(comm);
  return known && std::strncmp(name, "cuda-gdb", std::strlen("cuda-gdb")) == 0;  // and cuda-gdbserver
}

}  // namespace

Result<cuda::Api> load_cuda(Loading loading) {
  Result<Driver> driver = open_driver(loading);
  if (!driver.ok()) return driver.error();
  cuda::Api api;
#define X(name, parameters) \
  if (!find(driver.value().library, #name, &api.name)) return Error::because("the NVIDIA driver lacks " #name);
  PYMON_CUDA_FUNCTIONS(X)
#undef X
  return api;
}

Result<Cupti> load_cupti(Loading loading) {
  Result<Driver> driver = open_driver(loading);
  if (!driver.ok()) return driver.error();
  void* library = open_cupti(driver.value(), loading);
  if (library == nullptr) return Error::because("no libcupti (" + why_not("libcupti", loading) + ")");
  Cupti cupti;
#define X(name, parameters) \
  if (!find(library, #name, &cupti.api.name)) return Error::because("libcupti lacks " #name);
  PYMON_CUPTI_FUNCTIONS(X)
#undef X
#define X(name, parameters) find(library, #name, &cupti.api.name);
  PYMON_CUPTI_OPTIONAL_FUNCTIONS(X)
#undef X
  if (const cupti::Result result = cupti.api.cuptiGetVersion(&cupti.version); result != cupti::kSuccess) {
    return Error::because("cuptiGetVersion: " + result_text(cupti.api, result));
  }
  const std::string version = std::to_string(cupti.version);
  if (cupti.version < kOldestCupti) return Error::because("CUPTI API " + version + " is older than CUDA 12.4");
  if (cupti.version == kBrokenCupti) {
    return Error::because("CUPTI API " + version + " (CUDA 13.0 without Update 1) can hang the process");
  }
  cupti.may_refuse_buffers = cupti.version >= kFirstThatTakesNoBuffer;
  return cupti;
}

std::string other_tool() {
  for (const Sign& sign : kSigns) {
    const char* value = set_variable(sign.variable);
    if (value != nullptr && std::strstr(value, sign.part) != nullptr) return sign.tool;
  }
  const char* injected = set_variable(kInjection);
  if (injected != nullptr && std::strstr(injected, kOurInjection) == nullptr) {
    return std::string("another tool is injected into this process: ") + injected;
  }
  if (is_under_cuda_gdb()) return "cuda-gdb is attached to this process";
  return {};
}

bool expects_kineto() { return set_variable("KINETO_USE_DAEMON") != nullptr; }

std::string result_text(const cupti::Api& api, cupti::Result result) {
  const char* text = nullptr;  // CUPTI 13.3 leaves it untouched where it cannot initialise
  if (api.cuptiGetResultString != nullptr && api.cuptiGetResultString(result, &text) == cupti::kSuccess &&
      text != nullptr) {
    return std::string(text) + " (" + std::to_string(result) + ")";
  }
  return "CUPTI error " + std::to_string(result);
}

}  // namespace pymon
