#include "gpu/kernel_class.h"

#include <cstring>

namespace pymon {
namespace {

struct Rule {
  const char* part;  // anywhere in the name, case counts
  WorkClass work;
};

// The first rule that matches decides, so the special comes before the general. To teach pymon a kernel, add a line, and
// its name to tests/native/kernel_class_test.cpp.
constexpr Rule kRules[] = {
    // NCCL by collective; then the all-reduces that PyTorch's symmetric memory and vLLM bring along.
    {"ncclDevKernel_AllReduce", kNcclAllReduce},
    {"ncclDevKernel_AllGather", kNcclAllGather},
    {"ncclDevKernel_ReduceScatter", kNcclReduceScatter},
    {"ncclDevKernel_Broadcast", kNcclBroadcast},
    {"ncclDevKernel_Reduce", kNcclReduce},
    {"ncclDevKernel_SendRecv", kNcclSendRecv},
    {"ncclKernel_AllReduce", kNcclAllReduce},  // NCCL before 2.19
    {"ncclKernel_AllGather", kNcclAllGather},
    {"ncclKernel_ReduceScatter", kNcclReduceScatter},
    {"ncclKernel_Broadcast", kNcclBroadcast},
    {"ncclKernel_Reduce", kNcclReduce},
    {"ncclKernel_SendRecv", kNcclSendRecv},
    {"nccl", kNcclOther},
    {"multimem_all_reduce", kNcclAllReduce},
    {"multimem_one_shot_all_reduce", kNcclAllReduce},
    {"one_shot_all_reduce", kNcclAllReduce},
    {"two_shot_all_reduce", kNcclAllReduce},
    {"cross_device_reduce", kNcclAllReduce},

    // Inductor names a fused kernel after the operators around it: only its prefix says what kind of loop it is.
    {"triton_poi", kElementwise},
    {"triton_for", kElementwise},
    {"triton_tem", kGemm},
    {"triton_mm", kGemm},

    {"flash", kAttention},
    {"fmha", kAttention},
    {"attention", kAttention},
    {"Attention", kAttention},
    {"sdpa", kAttention},
    {"mha_fwd", kAttention},
    {"mha_bwd", kAttention},

    {"embedding", kEmbedding},
    {"Embedding", kEmbedding},

    {"multi_tensor_apply", kOptimizerKernel},  // foreach and fused optimizers, gradient clipping
    {"Adam", kOptimizerKernel},
    {"adam", kOptimizerKernel},
    {"fused_sgd", kOptimizerKernel},
    {"FusedSgd", kOptimizerKernel},
    {"Lamb", kOptimizerKernel},
    {"adagrad", kOptimizerKernel},

    {"layer_norm", kNormalisation},
    {"LayerNorm", kNormalisation},
    {"batch_norm", kNormalisation},
    {"BatchNorm", kNormalisation},
    {"bn_fw", kNormalisation},
    {"bn_bw", kNormalisation},
    {"rms_norm", kNormalisation},
    {"RMSNorm", kNormalisation},
    {"RmsNorm", kNormalisation},
    {"rmsnorm", kNormalisation},
    {"group_norm", kNormalisation},
    {"GroupNorm", kNormalisation},
    {"instance_norm", kNormalisation},
    {"GammaBeta", kNormalisation},
    {"RowwiseMoments", kNormalisation},
    {"ComputeFusedParams", kNormalisation},
    {"welford", kNormalisation},

    {"softmax", kSoftmax},
    {"SoftMax", kSoftmax},
    {"Softmax", kSoftmax},

    {"triton_red", kReduction},
    {"triton_per", kReduction},

    {"convolution", kConvolution},
    {"convolve", kConvolution},
    {"conv1d", kConvolution},
    {"conv2d", kConvolution},
    {"conv3d", kConvolution},
    {"conv_", kConvolution},
    {"_conv", kConvolution},
    {"fprop", kConvolution},
    {"dgrad", kConvolution},
    {"wgrad", kConvolution},
    {"winograd", kConvolution},
    {"im2col", kConvolution},
    {"col2im", kConvolution},
    {"cudnn", kConvolution},
    {"nchwToNhwc", kConvolution},
    {"nhwcToNchw", kConvolution},

    {"gemm", kGemm},
    {"Gemm", kGemm},
    {"GEMM", kGemm},
    {"gemv", kGemm},
    {"nvjet", kGemm},
    {"cutlass", kGemm},
    {"xmma", kGemm},
    {"cublas", kGemm},
    {"splitK", kGemm},
    {"matmul", kGemm},
    {"Cijk_", kGemm},  // ROCm's Tensile

    {"DeviceReduce", kReduction},
    {"index", kIndexing},
    {"Index", kIndexing},
    {"gather", kIndexing},
    {"scatter", kIndexing},
    {"sort", kIndexing},
    {"Sort", kIndexing},
    {"topk", kIndexing},
    {"TopK", kIndexing},
    {"radix", kIndexing},
    {"Radix", kIndexing},
    {"DeviceScan", kIndexing},
    {"DeviceSelect", kIndexing},

    {"reduce", kReduction},
    {"Reduce", kReduction},
    {"nll_loss", kReduction},
    {"argmax", kReduction},
    {"scan", kReduction},

    {"elementwise", kElementwise},
    {"Functor", kElementwise},
    {"functor", kElementwise},
    {"pointwise", kElementwise},
    {"dropout", kElementwise},
    {"distribution", kElementwise},
    {"CatArray", kElementwise},
    {"copy", kElementwise},
    {"Copy", kElementwise},
    {"fill", kElementwise},
    {"Fill", kElementwise},
    {"cast", kElementwise},
    {"transpose", kElementwise},
    {"gelu", kElementwise},
    {"silu", kElementwise},
    {"rotary", kElementwise},
    {"roll_cuda", kElementwise},
    {"triu_tril", kElementwise},
};

}  // namespace

WorkClass kernel_class(const char* name) noexcept {
  if (name == nullptr) return kOtherKernel;
  for (const Rule& rule : kRules) {
    if (std::strstr(name, rule.part) != nullptr) return rule.work;
  }
  return kOtherKernel;
}

}  // namespace pymon
