// Where the CUPTI layer stays off: each reason in words, in the page, and CUPTI not touched before it is known.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "doubles/cupti/cupti_double.h"
#include "gpu/cupti_layer.h"
#include "gpu/gpu_core.h"
#include "gpu_fixture.h"

using namespace pymon;

namespace {

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

std::string reason_of_absence() {
  Page page;
  CuptiLayer* layer = kept(CuptiLayer::start(page.writer.get(), &cuda_api(), CuptiOptions{}));
  eventually([&] { return page.cupti().head.state == kLayerAbsent; });
  layer->stop("test over", 2000);
  CHECK(page.cupti().head.state == kLayerAbsent);
  CHECK(layer->yield(10));
  return page.cupti().head.reason;
}

}  // namespace

TEST_CASE("another tool has CUPTI: it is not touched") {
  const std::pair<const char*, const char*> signs[] = {
      {"NSYS_PROFILING_SESSION_ID", "123"},
      {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "1"},
      {"CUDA_INJECTION64_PATH", "/opt/compute-sanitizer/libsanitizer-collection.so"},
      {"CUDA_INJECTION64_PATH", "/opt/other/libtool.so"},
      {"TEARDOWN_CUPTI", "1"},
  };
  const uint64_t versions = cupti_double_calls("cuptiGetVersion");
  for (const auto& [name, value] : signs) {
    INFO(name);
    const Variable set(name, value);
    CHECK_FALSE(other_tool().empty());
    CHECK(GpuCore::why_no_cupti() == other_tool());
  }
  CHECK(cupti_double_calls("cuptiGetVersion") == versions);
  const Variable harmless("TEARDOWN_CUPTI", "0"), none("CUDA_INJECTION64_PATH", "none");
  CHECK(other_tool().empty());
}

TEST_CASE("a refusal of CUPTI's carries its name") {
  const Variable fails("DOUBLE_CUPTI_FAIL", "cuptiActivityRegisterCallbacks=39");
  CHECK(reason_of_absence() ==
        "cuptiActivityRegisterCallbacks: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)");
}

TEST_CASE("a kind that cannot be enabled leaves none enabled") {
  const Variable fails("DOUBLE_CUPTI_FAIL", "cuptiActivityEnable=35");
  CHECK(reason_of_absence().find("INSUFFICIENT_PRIVILEGES") != std::string::npos);
  CHECK(cupti_double_enabled_kinds() == 0);
}

TEST_CASE("a CUPTI that hands out nothing is no running layer") {
  const Variable fails("DOUBLE_CUPTI_FAIL", "cuptiActivityFlushAll=999");
  Page page;
  CuptiOptions options;
  options.flush_ns = 5'000'000;
  CuptiLayer* layer = kept(CuptiLayer::start(page.writer.get(), &cuda_api(), options));
  CHECK(eventually([&] { return page.cupti().head.state == kLayerDisarmed; }));
  CHECK(std::string(page.cupti().head.reason) == "cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN (999)");
  CHECK(page.cupti().head.last_error == 999);
  layer->stop("test over", 2000);
}

TEST_CASE("a version that does not answer is no version") {
  const Variable fails("DOUBLE_CUPTI_FAIL", "cuptiGetVersion=999");
  CHECK(reason_of_absence() == "cuptiGetVersion: CUPTI_ERROR_UNKNOWN (999)");
}

TEST_CASE("switched off by configuration, said in the page") {
  Page page;
  GpuOptions options;
  options.why_no_events = options.why_no_cupti = "switched off by configuration";
  static GpuCore* core = &GpuCore::instance();  // forgotten below
  core->start(page.writer.get(), options);
  CHECK(page.gpu().state == kLayerAbsent);
  CHECK(std::string(page.cupti().head.reason) == "switched off by configuration");
  CHECK(core->yield(10, "a test"));
  GpuCore::forget_in_child();
}
