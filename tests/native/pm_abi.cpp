// Compiles only where csrc/gpu's own declarations of PM sampling agree with NVIDIA's headers of one version, 12.6 or newer;
// test_abi.py gets those.
#define __CUDA_API_VERSION_INTERNAL  // cuda.h then declares each function by the name that the library exports
#include <cuda.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <cupti_version.h>

#include <cstddef>

#include "gpu/pm_abi.h"
#include "abi_same.h"

namespace pm = pymon::pm;

#define SAME_FIELD(Ours, field, their_field)                                                   \
  static_assert(offsetof(pm::Ours, field) == offsetof(Their##Ours, their_field) &&             \
                    sizeof(pm::Ours::field) == sizeof(Their##Ours::their_field) &&             \
                    std::is_pointer_v<decltype(pm::Ours::field)> ==                            \
                        std::is_pointer_v<decltype(Their##Ours::their_field)>,                 \
                #Ours "." #field)
// The size that CUPTI is told must be its own, without what pads the last field.
#define SAME_SIZE(Ours, theirs) static_assert(pm::kStructSize<pm::Ours> == theirs##_STRUCT_SIZE, #Ours " has another size")
#define NOT_LONGER(Ours) static_assert(sizeof(pm::Ours) <= sizeof(Their##Ours), #Ours " is longer than theirs")

using TheirProfilerInitialize = CUpti_Profiler_Initialize_Params;
SAME_SIZE(ProfilerInitialize, CUpti_Profiler_Initialize_Params);
SAME_FIELD(ProfilerInitialize, struct_size, structSize);
SAME_FIELD(ProfilerInitialize, priv, pPriv);

using TheirProfilerDeInitialize = CUpti_Profiler_DeInitialize_Params;
SAME_SIZE(ProfilerDeInitialize, CUpti_Profiler_DeInitialize_Params);
SAME_FIELD(ProfilerDeInitialize, struct_size, structSize);
SAME_FIELD(ProfilerDeInitialize, priv, pPriv);

using TheirChipName = CUpti_Device_GetChipName_Params;
SAME_SIZE(ChipName, CUpti_Device_GetChipName_Params);
SAME_FIELD(ChipName, struct_size, structSize);
SAME_FIELD(ChipName, priv, pPriv);
SAME_FIELD(ChipName, device, deviceIndex);
SAME_FIELD(ChipName, name, pChipName);

using TheirHostInitialize = CUpti_Profiler_Host_Initialize_Params;
// Longer from 13.2 on: the size is that of the fields before.
NOT_LONGER(HostInitialize);
SAME_FIELD(HostInitialize, struct_size, structSize);
SAME_FIELD(HostInitialize, priv, pPriv);
SAME_FIELD(HostInitialize, type, profilerType);
SAME_FIELD(HostInitialize, chip, pChipName);
SAME_FIELD(HostInitialize, availability, pCounterAvailabilityImage);
SAME_FIELD(HostInitialize, object, pHostObject);

using TheirHostDeinitialize = CUpti_Profiler_Host_Deinitialize_Params;
SAME_SIZE(HostDeinitialize, CUpti_Profiler_Host_Deinitialize_Params);
SAME_FIELD(HostDeinitialize, struct_size, structSize);
SAME_FIELD(HostDeinitialize, priv, pPriv);
SAME_FIELD(HostDeinitialize, object, pHostObject);

using TheirConfigAddMetrics = CUpti_Profiler_Host_ConfigAddMetrics_Params;
SAME_SIZE(ConfigAddMetrics, CUpti_Profiler_Host_ConfigAddMetrics_Params);
SAME_FIELD(ConfigAddMetrics, struct_size, structSize);
SAME_FIELD(ConfigAddMetrics, priv, pPriv);
SAME_FIELD(ConfigAddMetrics, object, pHostObject);
SAME_FIELD(ConfigAddMetrics, names, ppMetricNames);
SAME_FIELD(ConfigAddMetrics, count, numMetrics);

using TheirConfigImageSize = CUpti_Profiler_Host_GetConfigImageSize_Params;
SAME_SIZE(ConfigImageSize, CUpti_Profiler_Host_GetConfigImageSize_Params);
SAME_FIELD(ConfigImageSize, struct_size, structSize);
SAME_FIELD(ConfigImageSize, priv, pPriv);
SAME_FIELD(ConfigImageSize, object, pHostObject);
SAME_FIELD(ConfigImageSize, bytes, configImageSize);

using TheirConfigImage = CUpti_Profiler_Host_GetConfigImage_Params;
SAME_SIZE(ConfigImage, CUpti_Profiler_Host_GetConfigImage_Params);
SAME_FIELD(ConfigImage, struct_size, structSize);
SAME_FIELD(ConfigImage, priv, pPriv);
SAME_FIELD(ConfigImage, object, pHostObject);
SAME_FIELD(ConfigImage, bytes, configImageSize);
SAME_FIELD(ConfigImage, image, pConfigImage);

using TheirNumOfPasses = CUpti_Profiler_Host_GetNumOfPasses_Params;
SAME_SIZE(NumOfPasses, CUpti_Profiler_Host_GetNumOfPasses_Params);
SAME_FIELD(NumOfPasses, struct_size, structSize);
SAME_FIELD(NumOfPasses, priv, pPriv);
SAME_FIELD(NumOfPasses, bytes, configImageSize);
SAME_FIELD(NumOfPasses, image, pConfigImage);
SAME_FIELD(NumOfPasses, passes, numOfPasses);

using TheirEvaluateToGpuValues = CUpti_Profiler_Host_EvaluateToGpuValues_Params;
SAME_SIZE(EvaluateToGpuValues, CUpti_Profiler_Host_EvaluateToGpuValues_Params);
SAME_FIELD(EvaluateToGpuValues, struct_size, structSize);
SAME_FIELD(EvaluateToGpuValues, priv, pPriv);
SAME_FIELD(EvaluateToGpuValues, object, pHostObject);
SAME_FIELD(EvaluateToGpuValues, image, pCounterDataImage);
SAME_FIELD(EvaluateToGpuValues, bytes, counterDataImageSize);
SAME_FIELD(EvaluateToGpuValues, sample, rangeIndex);
SAME_FIELD(EvaluateToGpuValues, names, ppMetricNames);
SAME_FIELD(EvaluateToGpuValues, count, numMetrics);
SAME_FIELD(EvaluateToGpuValues, values, pMetricValues);

using TheirCounterAvailability = CUpti_PmSampling_GetCounterAvailability_Params;
SAME_SIZE(CounterAvailability, CUpti_PmSampling_GetCounterAvailability_Params);
SAME_FIELD(CounterAvailability, struct_size, structSize);
SAME_FIELD(CounterAvailability, priv, pPriv);
SAME_FIELD(CounterAvailability, device, deviceIndex);
SAME_FIELD(CounterAvailability, bytes, counterAvailabilityImageSize);
SAME_FIELD(CounterAvailability, image, pCounterAvailabilityImage);

using TheirEnable = CUpti_PmSampling_Enable_Params;
SAME_SIZE(Enable, CUpti_PmSampling_Enable_Params);
SAME_FIELD(Enable, struct_size, structSize);
SAME_FIELD(Enable, priv, pPriv);
SAME_FIELD(Enable, device, deviceIndex);
SAME_FIELD(Enable, object, pPmSamplingObject);

using TheirDisable = CUpti_PmSampling_Disable_Params;
SAME_SIZE(Disable, CUpti_PmSampling_Disable_Params);
SAME_FIELD(Disable, struct_size, structSize);
SAME_FIELD(Disable, priv, pPriv);
SAME_FIELD(Disable, object, pPmSamplingObject);

using TheirStart = CUpti_PmSampling_Start_Params;
SAME_SIZE(Start, CUpti_PmSampling_Start_Params);
SAME_FIELD(Start, struct_size, structSize);
SAME_FIELD(Start, priv, pPriv);
SAME_FIELD(Start, object, pPmSamplingObject);

using TheirStop = CUpti_PmSampling_Stop_Params;
SAME_SIZE(Stop, CUpti_PmSampling_Stop_Params);
SAME_FIELD(Stop, struct_size, structSize);
SAME_FIELD(Stop, priv, pPriv);
SAME_FIELD(Stop, object, pPmSamplingObject);

using TheirSetConfig = CUpti_PmSampling_SetConfig_Params;
#if CUPTI_API_VERSION >= 26
SAME_SIZE(SetConfig, CUpti_PmSampling_SetConfig_Params);
SAME_FIELD(SetConfig, append, hwBufferAppendMode);
#endif
SAME_FIELD(SetConfig, struct_size, structSize);
SAME_FIELD(SetConfig, priv, pPriv);
SAME_FIELD(SetConfig, object, pPmSamplingObject);
SAME_FIELD(SetConfig, config_bytes, configSize);
SAME_FIELD(SetConfig, config, pConfig);
SAME_FIELD(SetConfig, buffer_bytes, hardwareBufferSize);
SAME_FIELD(SetConfig, interval, samplingInterval);
SAME_FIELD(SetConfig, trigger, triggerMode);

using TheirCounterDataSize = CUpti_PmSampling_GetCounterDataSize_Params;
SAME_SIZE(CounterDataSize, CUpti_PmSampling_GetCounterDataSize_Params);
SAME_FIELD(CounterDataSize, struct_size, structSize);
SAME_FIELD(CounterDataSize, priv, pPriv);
SAME_FIELD(CounterDataSize, object, pPmSamplingObject);
SAME_FIELD(CounterDataSize, names, pMetricNames);
SAME_FIELD(CounterDataSize, count, numMetrics);
SAME_FIELD(CounterDataSize, samples, maxSamples);
SAME_FIELD(CounterDataSize, bytes, counterDataSize);

using TheirCounterDataInitialize = CUpti_PmSampling_CounterDataImage_Initialize_Params;
SAME_SIZE(CounterDataInitialize, CUpti_PmSampling_CounterDataImage_Initialize_Params);
SAME_FIELD(CounterDataInitialize, struct_size, structSize);
SAME_FIELD(CounterDataInitialize, priv, pPriv);
SAME_FIELD(CounterDataInitialize, object, pPmSamplingObject);
SAME_FIELD(CounterDataInitialize, bytes, counterDataSize);
SAME_FIELD(CounterDataInitialize, image, pCounterData);

using TheirDecodeData = CUpti_PmSampling_DecodeData_Params;
SAME_SIZE(DecodeData, CUpti_PmSampling_DecodeData_Params);
SAME_FIELD(DecodeData, struct_size, structSize);
SAME_FIELD(DecodeData, priv, pPriv);
SAME_FIELD(DecodeData, object, pPmSamplingObject);
SAME_FIELD(DecodeData, image, pCounterDataImage);
SAME_FIELD(DecodeData, bytes, counterDataImageSize);
SAME_FIELD(DecodeData, stop_reason, decodeStopReason);
SAME_FIELD(DecodeData, overflow, overflow);

using TheirCounterDataInfo = CUpti_PmSampling_GetCounterDataInfo_Params;
SAME_SIZE(CounterDataInfo, CUpti_PmSampling_GetCounterDataInfo_Params);
SAME_FIELD(CounterDataInfo, struct_size, structSize);
SAME_FIELD(CounterDataInfo, priv, pPriv);
SAME_FIELD(CounterDataInfo, image, pCounterDataImage);
SAME_FIELD(CounterDataInfo, bytes, counterDataImageSize);
SAME_FIELD(CounterDataInfo, total, numTotalSamples);
SAME_FIELD(CounterDataInfo, populated, numPopulatedSamples);
SAME_FIELD(CounterDataInfo, completed, numCompletedSamples);

using TheirSampleInfo = CUpti_PmSampling_CounterData_GetSampleInfo_Params;
SAME_SIZE(SampleInfo, CUpti_PmSampling_CounterData_GetSampleInfo_Params);
SAME_FIELD(SampleInfo, struct_size, structSize);
SAME_FIELD(SampleInfo, priv, pPriv);
SAME_FIELD(SampleInfo, object, pPmSamplingObject);
SAME_FIELD(SampleInfo, image, pCounterDataImage);
SAME_FIELD(SampleInfo, bytes, counterDataImageSize);
SAME_FIELD(SampleInfo, sample, sampleIndex);
SAME_FIELD(SampleInfo, start, startTimestamp);
SAME_FIELD(SampleInfo, end, endTimestamp);

SAME_NUMBER(pm::kInvalidOperation, CUPTI_ERROR_INVALID_OPERATION);
SAME_NUMBER(pm::kOutOfMemory, CUPTI_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(pm::kHardwareBusy, CUPTI_ERROR_HARDWARE_BUSY);
SAME_NUMBER(pm::kNotSupported, CUPTI_ERROR_NOT_SUPPORTED);
SAME_NUMBER(pm::kVirtualized, CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(pm::kVirtualizedPrivileges, CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
SAME_NUMBER(pm::kConfidentialComputing, CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
SAME_NUMBER(pm::kMiningDevice, CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(pm::kTypePmSampling, CUPTI_PROFILER_TYPE_PM_SAMPLING);
SAME_NUMBER(pm::kSysclkInterval, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
SAME_NUMBER(pm::kTimeInterval, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
SAME_NUMBER(pm::kStopOther, CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER);
SAME_NUMBER(pm::kStopImageFull, CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL);
SAME_NUMBER(pm::kStopEndOfRecords, CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS);
SAME_NUMBER(pm::kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(pm::kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
#if CUPTI_API_VERSION >= 26
SAME_NUMBER(pm::kMigDevice, CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(pm::kSliDevice, CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(pm::kWslDevice, CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(pm::kKeepLatest, CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST);
#endif
#if CUPTI_API_VERSION >= 130000
SAME_NUMBER(pm::kInvalidChipName, CUPTI_ERROR_INVALID_CHIP_NAME);
#endif

#define X(name, parameters) static_assert(Same<decltype(pm::Api::name), decltype(&::name)>::value, #name);
PYMON_PM_FUNCTIONS(X)
#undef X
#define X(name, parameters) static_assert(Same<decltype(pm::CudaApi::name), decltype(&::name)>::value, #name);
PYMON_PM_CUDA_FUNCTIONS(X)
#undef X

int main() { return 0; }
