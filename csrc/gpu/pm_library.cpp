#include "gpu/pm_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace pymon {
namespace {

constexpr uint32_t kOldestPmCupti = 26;  // CUDA 12.8: SetConfig takes an append mode from then on
constexpr int kSysAdmin = 21;            // CAP_SYS_ADMIN in linux/capability.h
constexpr const char* kNoPermission =
    "no permission to read GPU counters (ERR_NVGPUCTRPERM): it takes CAP_SYS_ADMIN, or a driver loaded with "
    "NVreg_RestrictProfilingToAdminUsers=0";

// The value of `key` in a file of "key: value" lines; empty where it is not told.
std::string told(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size() + 1, key + ":") != 0) continue;
    const auto at = line.find_first_not_of(" \t", key.size() + 1);
    return at == std::string::npos ? std::string() : line.substr(at);
  }
  return {};
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The libcupti that `api` was taken from.
std::string path_of(const cupti::Api& api) {
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<void*>(api.cuptiGetVersion), &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : "";
}

}  // namespace

Result<PmLibrary> load_pm(Loading loading) {
  if (std::string tool = other_tool(); !tool.empty()) return Error::because(std::move(tool));
  Result<Cupti> cupti = load_cupti(loading);
  if (!cupti.ok()) return cupti.error();
  if (cupti.value().version < kOldestPmCupti) {
    return Error::because("CUPTI API " + std::to_string(cupti.value().version) +
                          " is too old: PM sampling is used from CUDA 12.8 (API 26) on");
  }
  PmLibrary found;
  found.cupti = cupti.value();
  const std::string path = path_of(found.cupti.api);
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr || driver == nullptr) return Error::because("libcupti or libcuda is gone");
#define X(name, parameters) \
  if (!find(library, #name, &found.pm.name)) return Error::because("libcupti lacks " #name);
  PYMON_PM_FUNCTIONS(X)
#undef X
#define X(name, parameters) \
  if (!find(driver, #name, &found.cuda.name)) return Error::because("the NVIDIA driver lacks " #name);
  PYMON_PM_CUDA_FUNCTIONS(X)
#undef X
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const char* name : {"libnvperf_host.so", "libnvperf_target.so"}) {
    if (access((folder + name).c_str(), R_OK) != 0) return Error::because(folder + name + " is missing beside libcupti");
  }
  return found;
}

std::string why_no_rights(const PmRights& rights) {
  if (told(rights.driver, "RmProfilingAdminOnly") != "1") return {};
  const std::string capabilities = told(rights.process, "CapEff");
  if (capabilities.empty()) return {};
  const bool admin = (std::strtoull(capabilities.c_str(), nullptr, 16) >> kSysAdmin & 1) != 0;
  return admin ? std::string() : kNoPermission;
}

std::string pm_error(const cupti::Api& api, const char* what, cupti::Result result) {
  const std::string text = std::string(what) + ": " + result_text(api, result);
  switch (result) {
    case cupti::kInsufficientPrivileges:
    case pm::kVirtualizedPrivileges:
      return std::string(kNoPermission) + " (" + text + ")";
    case pm::kInvalidOperation:
    case pm::kHardwareBusy:
    case cupti::kMultipleSubscribers:
      return "another profiler has this GPU's counters (" + text + ")";
    case pm::kNotSupported:
    case pm::kVirtualized:
    case pm::kConfidentialComputing:
    case pm::kMiningDevice:
    case pm::kMigDevice:
    case pm::kSliDevice:
    case pm::kWslDevice:
    case pm::kInvalidChipName:
      return "this GPU, as it is used here, has no PM sampling (" + text + ")";
    default:
      return text;
  }
}

}  // namespace pymon
