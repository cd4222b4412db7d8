// A burst of hardware counters on the double: right values, each refusal in words, all given back.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "doubles/cupti/pm_double.h"
#include "gpu/pm_sampling.h"

using namespace pymon;

namespace {

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

// A file below the working folder, gone after the test.
struct File {
  File(const char* name, const char* text) : name(name) { std::ofstream(name) << text; }
  ~File() { std::remove(name); }
  const char* name;
};

PmOptions options() {
  PmOptions made;
  made.duration_ms = 200;
  made.decode_ms = 20;
  made.rights = {"/nonexistent", "/nonexistent"};
  return made;
}

std::string refusal(const PmOptions& asked = options()) {
  const Result<std::unique_ptr<PmSampler>> sampler = PmSampler::arm(asked);
  CHECK_FALSE(sampler.ok());
  CHECK(pm_double_alive() == 0);
  return sampler.ok() ? std::string() : sampler.error().text;
}

bool contains(const std::string& text, const char* part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

Result<PmBurst> burst_of(const PmOptions& asked) {
  Result<std::unique_ptr<PmSampler>> sampler = PmSampler::arm(asked);
  if (!sampler.ok()) return sampler.error();
  const std::atomic<bool> stop{false};
  return sampler.value()->run(stop);
}

PmBurst whole(const PmOptions& asked = options()) {
  Result<PmBurst> burst = burst_of(asked);
  REQUIRE_MESSAGE(burst.ok(), burst.error().text);
  CHECK(pm_double_alive() == 0);
  return burst.value();
}

}  // namespace

TEST_CASE("a burst gives each metric of each sample, in our units") {
  const PmBurst burst = whole();
  const size_t samples = burst.start_ns.size(), width = burst.metrics.size();
  CHECK(burst.chip == "GH100");
  CHECK(burst.device == "NVIDIA H200 (double)");
  CHECK(width == kPmMetricCount);
  CHECK(samples >= 390);  // 200 ms of half a millisecond each
  REQUIRE(burst.values.size() == samples * width);
  for (size_t m = 0; m < width; ++m) {
    const PmMetric& metric = kPmMetrics[burst.metrics[m]];
    const PmDoubleValue& truth = kPmDoubleValues[m];
    REQUIRE(std::string(metric.cupti) == truth.metric);
    double sum = 0;
    for (size_t i = 0; i < samples; ++i) sum += burst.values[i * width + m];
    // Samples 1 to N: all but the one that began before the burst, so those with an odd number are first.
    const double halves = static_cast<double>((samples + 1) / 2), wholes = static_cast<double>(samples / 2);
    const double right = truth.is_ratio ? (halves / 2 + wholes) * truth.value * 0.01
                                        : static_cast<double>(samples) * truth.value;
    CHECK(sum == doctest::Approx(right));
  }
  CHECK(burst.samples_cut >= 1);  // at its beginning; mostly at its end too
  CHECK(burst.samples_cut <= 2);
  CHECK(burst.samples_lost == 0);
  CHECK(burst.overflows == 0);
  CHECK_FALSE(burst.stopped);
  CHECK(burst.start_ns.front() >= burst.began_ns);
  CHECK(burst.end_ns.back() <= burst.ended_ns);
}

TEST_CASE("metrics that the chip has not are left out, the others stay") {
  const Variable chip("DOUBLE_PM_CHIP", "AD102");
  const PmBurst burst = whole();
  CHECK(burst.metrics == std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 9});
}

TEST_CASE("GA100 is sampled by clock cycles") {
  const Variable chip("DOUBLE_PM_CHIP", "GA100"), device("DOUBLE_CUDA_DEVICE", "NVIDIA A100;8;0");
  CHECK(whole().start_ns.size() >= 390);
}

TEST_CASE("samples that are missing between two others are counted") {
  const Variable gap("DOUBLE_PM_GAP", "7");
  CHECK(whole().samples_lost == 7);
}

TEST_CASE("a buffer on the GPU that runs full is counted, however CUPTI says so") {
  PmOptions small = options();
  small.buffer_bytes = 8 * kPmDoubleSampleBytes;  // of 40 samples between two decodes
  PmBurst burst = whole(small);
  CHECK(burst.overflows >= 5);
  CHECK(burst.samples_lost >= 5 * 30);
  CHECK_FALSE(burst.start_ns.empty());
  const Variable flag("DOUBLE_PM_OVERFLOW", "flag");
  CHECK(whole(small).overflows >= 5);
}

TEST_CASE("an image that runs full is decoded again until nothing is left") {
  PmOptions late = options();
  late.duration_ms = 100;
  late.decode_ms = 1;  // room for four milliseconds, and a loaded machine is later than that
  CHECK(whole(late).start_ns.size() >= 190);
}

TEST_CASE("a burst ends early when it is told to") {
  PmOptions long_one = options();
  long_one.duration_ms = kPmLongestMs;
  Result<std::unique_ptr<PmSampler>> sampler = PmSampler::arm(long_one);
  REQUIRE(sampler.ok());
  std::atomic<bool> stop{false};
  std::thread teller([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
  });
  const Result<PmBurst> burst = sampler.value()->run(stop);
  teller.join();
  REQUIRE(burst.ok());
  CHECK(Result<PmBurst>(burst).value().stopped);
}

TEST_CASE("a burst is bounded") {
  PmOptions asked = options();
  asked.duration_ms = kPmLongestMs + 1;
  CHECK(refusal(asked) == "a burst lasts 10 s at most");
}

TEST_CASE("another tool has the process: nothing is called") {
  const Variable tool("NSYS_PROFILING_SESSION_ID", "7");
  const uint64_t calls = pm_double_calls();
  CHECK(contains(refusal(), "Nsight Systems"));
  CHECK(pm_double_calls() == calls);
}

TEST_CASE("who may not read counters is told before CUPTI is asked") {
  const File driver("pm_params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\n");
  const File user("pm_status", "Name:\tpython\nCapEff:\t0000000000000000\n");
  const File admin("pm_admin", "CapEff:\t0000000000200000\n");
  PmOptions asked = options();
  asked.rights = {driver.name, user.name};
  const uint64_t calls = pm_double_calls();
  const std::string reason = refusal(asked);
  CHECK(contains(reason, "ERR_NVGPUCTRPERM"));
  CHECK(contains(reason, "CAP_SYS_ADMIN"));
  CHECK(contains(reason, "NVreg_RestrictProfilingToAdminUsers=0"));
  CHECK(pm_double_calls() == calls);
  asked.rights = {driver.name, admin.name};
  CHECK(PmSampler::arm(asked).ok());
  const File open("pm_open", "RmProfilingAdminOnly: 0\n");
  asked.rights = {open.name, user.name};
  CHECK(PmSampler::arm(asked).ok());
}

TEST_CASE("CUPTI's own refusals in words") {
  const std::pair<const char*, const char*> answers[] = {
      {"cuptiPmSamplingEnable=35", "ERR_NVGPUCTRPERM"},
      {"cuptiPmSamplingEnable=7", "another profiler has this GPU's counters"},
      {"cuptiPmSamplingSetConfig=26", "another profiler has this GPU's counters"},
      {"cuptiPmSamplingGetCounterAvailability=27", "has no PM sampling"},
      {"cuptiDeviceGetChipName=46", "has no PM sampling"},
      {"cuptiProfilerInitialize=43", "has no PM sampling"},
      {"cuptiPmSamplingGetCounterDataSize=999", "cuptiPmSamplingGetCounterDataSize: "},
  };
  for (const auto& [script, words] : answers) {
    INFO(script);
    const Variable fails("DOUBLE_CUPTI_FAIL", script);
    CHECK(contains(refusal(), words));
  }
}

TEST_CASE("chips without PM sampling, or with more than one pass, and slices of a GPU") {
  {
    const Variable device("DOUBLE_CUDA_DEVICE", "Tesla V100;7;0");
    CHECK(contains(refusal(), "no PM sampling before Turing, and this is Tesla V100"));
  }
  {
    const Variable device("DOUBLE_CUDA_DEVICE", "Tesla T4;7;5"), chip("DOUBLE_PM_CHIP", "TU102");
    CHECK(contains(refusal(), "take 2 passes on this chip (TU102)"));
  }
  const Variable device("DOUBLE_CUDA_DEVICE", "NVIDIA H200 MIG 1g.18gb;9;0");
  CHECK(contains(refusal(), "samples whole GPUs"));
}

TEST_CASE("two bursts of one GPU: the second is refused, and the first goes on") {
  Result<std::unique_ptr<PmSampler>> first = PmSampler::arm(options());
  REQUIRE(first.ok());
  const auto second = PmSampler::arm(options());
  CHECK_FALSE(second.ok());
  const std::atomic<bool> stop{false};
  CHECK(first.value()->run(stop).ok());
}

TEST_CASE("a call that fails in the burst ends it, and all is given back") {
  for (const char* function : {"cuptiPmSamplingStart", "cuptiPmSamplingDecodeData", "cuptiPmSamplingStop",
                               "cuptiPmSamplingGetCounterDataInfo", "cuptiPmSamplingCounterDataGetSampleInfo",
                               "cuptiProfilerHostEvaluateToGpuValues"}) {
    INFO(function);
    const Variable fails("DOUBLE_CUPTI_FAIL", (std::string(function) + "=999").c_str());
    const Result<PmBurst> burst = burst_of(options());
    REQUIRE_FALSE(burst.ok());
    CHECK(contains(burst.error().text, function));
    CHECK(pm_double_alive() == 0);
  }
}
