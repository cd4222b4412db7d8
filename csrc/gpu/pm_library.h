// Finds what a burst of hardware counters calls, and checks before any of it is called whether it may be.
#pragma once

#include <string>

#include "core/result.h"
#include "gpu/library.h"
#include "gpu/pm_abi.h"

namespace pymon {

struct PmLibrary {
  Cupti cupti;
  pm::Api pm;
  pm::CudaApi cuda;
};

// The functions, or why there are none: no driver, another tool, CUPTI too old, libnvperf not beside it.
Result<PmLibrary> load_pm(Loading loading);

// Where the driver and the kernel tell who may read counters.
struct PmRights {
  const char* driver = "/proc/driver/nvidia/params";
  const char* process = "/proc/self/status";
};

// Empty where this process may, or where it is not told: CUPTI then says so itself.
std::string why_no_rights(const PmRights& rights);

// CUPTI's answer in words; `what` is the call.
std::string pm_error(const cupti::Api& api, const char* what, cupti::Result result);

}  // namespace pymon
