#include "doubles/cupti/pm_double.h"

#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "doubles/cupti/scripted.h"
#include "gpu/pm_abi.h"

using namespace pymon::pm;

PYMON_DOUBLE int cuptiGetTimestamp(uint64_t* timestamp);

namespace {

using pymon::cupti::kInvalidParameter;
using pymon::cupti::kUnknown;

constexpr uint32_t kMagic = 0x504d;

struct HostObject {
  bool broken = false;
  std::vector<std::string> metrics;
  size_t adds = 0;
};

struct ConfigBytes {
  uint32_t magic = kMagic;
  uint32_t passes = 0;
};

struct Sample {
  uint64_t start = 0, end = 0, number = 0;
};

// Of an image of counter data; `most` samples follow it.
struct ImageHead {
  uint64_t magic = kMagic, most = 0, count = 0;
};

struct Device {
  SetConfig config{};
  uint64_t began_ns = 0, ended_ns = 0;  // 0: not
  uint64_t decoded = 0;                 // samples of which no more is told
};

std::mutex g_mutex;
std::set<HostObject*> g_hosts;
Device* g_device = nullptr;
int g_initialised = 0;
uint64_t g_calls = 0;

std::string chip() {
  const char* name = std::getenv("DOUBLE_PM_CHIP");
  return name == nullptr ? "GH100" : name;
}

bool has(const std::string& metric) {
  const std::string where = chip();
  if (metric.compare(0, 3, "nvl") == 0) return where != "AD102" && where != "GB202";
  if (metric.compare(0, 4, "pcie") == 0) return where != "GB100";
  for (const PmDoubleValue& known : kPmDoubleValues) {
    if (metric == known.metric) return true;
  }
  return false;
}

// How many samples there are by `now`: the whole ones, and once it was stopped the one that was under way. The first one
// began half an interval before Start.
uint64_t there_are(const Device& device, uint64_t now) {
  if (device.began_ns == 0) return 0;
  const uint64_t until = device.ended_ns != 0 ? device.ended_ns : now;
  const uint64_t whole = (until - device.began_ns + device.config.interval / 2) / device.config.interval;
  return whole + (device.ended_ns != 0 ? 1 : 0);
}

Sample sample(const Device& device, uint64_t number) {
  const uint64_t start = device.began_ns - device.config.interval / 2 + number * device.config.interval;
  return {start, start + device.config.interval, number};
}

bool is_in_gap(uint64_t number) {
  const char* gap = std::getenv("DOUBLE_PM_GAP");
  return gap != nullptr && number > 10 && number <= 10 + std::strtoull(gap, nullptr, 10);
}

ImageHead* head_of(uint8_t* image) { return reinterpret_cast<ImageHead*>(image); }
const ImageHead* head_of(const uint8_t* image) { return reinterpret_cast<const ImageHead*>(image); }

const Sample* sample_of(const uint8_t* image, size_t index) {
  const ImageHead* head = head_of(image);
  if (head->magic != kMagic || index >= head->count) return nullptr;
  return reinterpret_cast<const Sample*>(image + sizeof(ImageHead)) + index;
}

template <typename Params>
int checked(const char* function, const Params* params) {
  ++g_calls;
  if (const int signal = scripted("DOUBLE_CUPTI_CRASH", function)) std::raise(signal);
  while (scripted("DOUBLE_CUPTI_HANG", function) != 0) pause();
  if (const int failure = scripted("DOUBLE_CUPTI_FAIL", function)) return failure;
  return params->struct_size == kStructSize<Params> && params->priv == nullptr ? 0 : kInvalidParameter;
}

}  // namespace

#define CHECKED(function)                     \
  std::lock_guard<std::mutex> lock(g_mutex);  \
  if (const int result = checked(#function, params)) return result

PYMON_DOUBLE int cuptiProfilerInitialize(ProfilerInitialize* params) {
  CHECKED(cuptiProfilerInitialize);
  ++g_initialised;
  return 0;
}

PYMON_DOUBLE int cuptiProfilerDeInitialize(ProfilerDeInitialize* params) {
  CHECKED(cuptiProfilerDeInitialize);
  if (g_initialised-- == 0) {
    std::fprintf(stderr, "cupti double: ProfilerDeInitialize, and nothing is initialised\n");
    std::abort();
  }
  return 0;
}

PYMON_DOUBLE int cuptiDeviceGetChipName(ChipName* params) {
  CHECKED(cuptiDeviceGetChipName);
  static std::set<std::string> names;  // CUPTI's strings live on
  params->name = names.insert(chip()).first->c_str();
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingGetCounterAvailability(CounterAvailability* params) {
  CHECKED(cuptiPmSamplingGetCounterAvailability);
  if (params->image == nullptr) params->bytes = sizeof kMagic;
  else std::memcpy(params->image, &kMagic, sizeof kMagic);
  return 0;
}

PYMON_DOUBLE int cuptiProfilerHostInitialize(HostInitialize* params) {
  CHECKED(cuptiProfilerHostInitialize);
  if (params->type != kTypePmSampling || params->chip == nullptr) return kInvalidParameter;
  auto* made = new HostObject;
  g_hosts.insert(made);
  params->object = made;
  return 0;
}

PYMON_DOUBLE int cuptiProfilerHostDeinitialize(HostDeinitialize* params) {
  CHECKED(cuptiProfilerHostDeinitialize);
  auto* object = static_cast<HostObject*>(params->object);
  if (g_hosts.erase(object) == 0) return kInvalidParameter;
  delete object;
  return 0;
}

PYMON_DOUBLE int cuptiProfilerHostConfigAddMetrics(ConfigAddMetrics* params) {
  CHECKED(cuptiProfilerHostConfigAddMetrics);
  auto* object = static_cast<HostObject*>(params->object);
  if (object->broken) return kUnknown;
  for (size_t i = 0; i < params->count; ++i) {
    object->broken |= !has(params->names[i]);
    object->metrics.emplace_back(params->names[i]);
  }
  ++object->adds;
  return object->broken ? kInvalidParameter : 0;
}

PYMON_DOUBLE int cuptiProfilerHostGetConfigImageSize(ConfigImageSize* params) {
  CHECKED(cuptiProfilerHostGetConfigImageSize);
  params->bytes = sizeof(ConfigBytes);
  return static_cast<HostObject*>(params->object)->broken ? kUnknown : 0;
}

PYMON_DOUBLE int cuptiProfilerHostGetConfigImage(ConfigImage* params) {
  CHECKED(cuptiProfilerHostGetConfigImage);
  const auto* object = static_cast<HostObject*>(params->object);
  ConfigBytes config;
  config.passes = static_cast<uint32_t>(object->adds);
  for (const std::string& metric : object->metrics) {
    if (chip() == "TU102" && metric.find("tensor") != std::string::npos) ++config.passes;
  }
  if (params->bytes < sizeof config) return kInvalidParameter;
  std::memcpy(params->image, &config, sizeof config);
  return 0;
}

PYMON_DOUBLE int cuptiProfilerHostGetNumOfPasses(NumOfPasses* params) {
  CHECKED(cuptiProfilerHostGetNumOfPasses);
  ConfigBytes config;
  std::memcpy(&config, params->image, sizeof config);
  params->passes = config.passes;
  return config.magic == kMagic ? 0 : kInvalidParameter;
}

PYMON_DOUBLE int cuptiPmSamplingEnable(Enable* params) {
  CHECKED(cuptiPmSamplingEnable);
  if (g_initialised == 0) return pymon::cupti::kNotInitialized;
  if (g_device != nullptr) return kInvalidOperation;
  params->object = g_device = new Device;
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingDisable(Disable* params) {
  CHECKED(cuptiPmSamplingDisable);
  if (params->object != g_device || g_device == nullptr) return kInvalidParameter;
  if (g_device->config.config != nullptr) {
    ConfigBytes config;  // it must still be there
    std::memcpy(&config, g_device->config.config, sizeof config);
    if (config.magic != kMagic) std::abort();
  }
  delete g_device;
  g_device = nullptr;
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingSetConfig(SetConfig* params) {
  CHECKED(cuptiPmSamplingSetConfig);
  if (params->object != g_device || params->interval == 0 || params->append != kKeepLatest) return kInvalidParameter;
  const std::string name = chip();
  if (params->trigger == kTimeInterval && (name == "TU102" || name == "GA100")) return kNotSupported;
  g_device->config = *params;
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingGetCounterDataSize(CounterDataSize* params) {
  CHECKED(cuptiPmSamplingGetCounterDataSize);
  params->bytes = sizeof(ImageHead) + params->samples * sizeof(Sample);
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingCounterDataImageInitialize(CounterDataInitialize* params) {
  CHECKED(cuptiPmSamplingCounterDataImageInitialize);
  ImageHead head;
  head.most = (params->bytes - sizeof head) / sizeof(Sample);
  std::memcpy(params->image, &head, sizeof head);
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingStart(Start* params) {
  CHECKED(cuptiPmSamplingStart);
  if (params->object != g_device || g_device->began_ns != 0) return kInvalidOperation;
  cuptiGetTimestamp(&g_device->began_ns);
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingStop(Stop* params) {
  CHECKED(cuptiPmSamplingStop);
  if (params->object != g_device || g_device->began_ns == 0) return kInvalidOperation;
  cuptiGetTimestamp(&g_device->ended_ns);
  return 0;
}

PYMON_DOUBLE int cuptiPmSamplingDecodeData(DecodeData* params) {
  CHECKED(cuptiPmSamplingDecodeData);
  ImageHead* head = head_of(params->image);
  if (params->object != g_device || head->magic != kMagic) return kInvalidParameter;
  uint64_t now = 0;
  cuptiGetTimestamp(&now);
  const uint64_t there = there_are(*g_device, now);
  const uint64_t room = g_device->config.buffer_bytes / kPmDoubleSampleBytes;
  const bool full = there - g_device->decoded > room;
  if (full) g_device->decoded = there - room;
  auto* samples = reinterpret_cast<Sample*>(params->image + sizeof(ImageHead));
  while (g_device->decoded < there && head->count < head->most) {
    const uint64_t number = g_device->decoded++;
    if (!is_in_gap(number)) samples[head->count++] = sample(*g_device, number);
  }
  params->stop_reason = g_device->decoded < there ? kStopImageFull : kStopEndOfRecords;
  const char* how = std::getenv("DOUBLE_PM_OVERFLOW");
  params->overflow = full && how != nullptr && std::strcmp(how, "flag") == 0;
  return full && params->overflow == 0 ? kOutOfMemory : 0;
}

PYMON_DOUBLE int cuptiPmSamplingGetCounterDataInfo(CounterDataInfo* params) {
  CHECKED(cuptiPmSamplingGetCounterDataInfo);
  const ImageHead* head = head_of(params->image);
  params->total = head->most;
  params->populated = params->completed = head->count;
  return head->magic == kMagic ? 0 : kInvalidParameter;
}

PYMON_DOUBLE int cuptiPmSamplingCounterDataGetSampleInfo(SampleInfo* params) {
  CHECKED(cuptiPmSamplingCounterDataGetSampleInfo);
  const Sample* found = sample_of(params->image, params->sample);
  if (found == nullptr) return kInvalidParameter;
  params->start = found->start;
  params->end = found->end;
  return 0;
}

PYMON_DOUBLE int cuptiProfilerHostEvaluateToGpuValues(EvaluateToGpuValues* params) {
  CHECKED(cuptiProfilerHostEvaluateToGpuValues);
  const Sample* found = sample_of(params->image, params->sample);
  if (found == nullptr || g_hosts.count(static_cast<HostObject*>(params->object)) == 0) return kInvalidParameter;
  for (size_t i = 0; i < params->count; ++i) {
    for (const PmDoubleValue& known : kPmDoubleValues) {
      if (std::strcmp(known.metric, params->names[i]) != 0) continue;
      params->values[i] = known.is_ratio && found->number % 2 == 1 ? known.value / 2 : known.value;
    }
  }
  return 0;
}

int pm_double_alive() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return static_cast<int>(g_hosts.size()) + (g_device != nullptr ? 1 : 0) + g_initialised;
}

uint64_t pm_double_calls() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_calls;
}
