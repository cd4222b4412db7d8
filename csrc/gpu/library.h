// Finds libcuda and libcupti in this process, and decides whether CUPTI may be touched at all.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "gpu/cuda_abi.h"
#include "gpu/cupti_abi.h"

namespace pymon {

// Whether a library that this process has not loaded yet may be loaded by us. Never for CUPTI beside torch: a second
// copy of it, next to one that torch may have linked in, would collide with it.
enum class Loading { kOnlyLoaded, kMayLoad };

// The driver's functions, or why there are none. Initialises nothing: cuInit in a process that forks later breaks CUDA
// in its children.
Result<cuda::Api> load_cuda(Loading loading);

struct Cupti {
  cupti::Api api;
  uint32_t version = 0;  // CUPTI's API number: 22 for CUDA 12.4, 130001 for 13.0 Update 1
  bool may_refuse_buffers = true;
};

// CUPTI's functions, or why there are none. Asks for the driver first: without one, real CUPTI answers wrongly or
// crashes, differently by version, in cuptiGetVersion too. Whoever asks has asked `other_tool` before.
Result<Cupti> load_cupti(Loading loading);

// Empty, or which tool has CUPTI already, in words. Reads the environment, so in a thread that no other changes it under:
// with the GIL, or inside cuInit.
std::string other_tool();

// Whether Kineto's daemon mode may capture this process without a word (likewise).
bool expects_kineto();

// "CUPTI_ERROR_... (39)", or the number alone where this CUPTI has no words for it.
std::string result_text(const cupti::Api& api, cupti::Result result);

}  // namespace pymon
