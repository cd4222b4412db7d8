// Plans a burst with the planner of a real libcupti, without a GPU: `pm_planner LIBCUPTI CHIP...` prints for each chip
// either the metrics or why there is no plan.
#include <dlfcn.h>

#include <cstdio>

#include "gpu/pm_plan.h"

using namespace pymon;

int main(int count, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return std::puts(dlerror()), 1;
  PmLibrary found;
#define X(name, parameters) found.pm.name = reinterpret_cast<decltype(found.pm.name)>(dlsym(library, #name));
  PYMON_PM_FUNCTIONS(X)
#undef X
  for (int i = 2; i < count; ++i) {
    Result<PmPlan> plan = PmPlan::made(found, arguments[i], {});
    if (!plan.ok()) {
      std::printf("%s: %s\n", arguments[i], plan.error().text.c_str());
      continue;
    }
    std::printf("%s:", arguments[i]);
    for (const size_t metric : plan.value().metrics()) std::printf(" %s", kPmMetrics[metric].name);
    std::printf("\n");
  }
}
