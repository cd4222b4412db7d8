// The parts of csrc/gpu that need no CUPTI: classes, names, clock, busy time, guard.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device_memory.h"
#include "gpu/kernel_class.h"
#include "gpu/name_cache.h"
#include "gpu/record_clock.h"
#include "gpu/self_guard.h"
#include "gpu/timeline.h"

using namespace pymon;

TEST_CASE("kernels are classed by their names, the special before the general") {
  const std::pair<const char*, WorkClass> known[] = {
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kNcclAllReduce},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", kNcclAllReduce},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", kNcclReduceScatter},
      {"ncclDevKernel_Reduce_Sum_f32_RING_LL", kNcclReduce},
      {"ncclDevKernel_AllGather_RING_LL", kNcclAllGather},
      {"ncclDevKernel_Broadcast_RING_LL", kNcclBroadcast},
      {"ncclDevKernel_SendRecv", kNcclSendRecv},
      {"ncclSomethingNew", kNcclOther},
      {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", kGemm},
      {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x4_nn", kGemm},
      {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>", kGemm},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", kGemm},
      {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", kGemm},
      {"_ZN5flash23flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traits", kAttention},
      {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80", kAttention},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", kAttention},
      {"sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16", kConvolution},
      {"cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_64x64>", kConvolution},
      {"void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", kConvolution},
      {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>", kNormalisation},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", kNormalisation},
      {"void at::native::batch_norm_collect_statistics_channels_last_kernel", kNormalisation},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>", kSoftmax},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, true>", kSoftmax},
      {"void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, int>", kEmbedding},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>",
       kOptimizerKernel},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", kElementwise},
      {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE", kElementwise},
      {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", kElementwise},
      {"triton_poi_fused_add_native_layer_norm_convolution_0", kElementwise},
      {"triton_per_fused__softmax_1", kSoftmax},
      {"triton_red_fused_mean_pow_2", kReduction},
      {"triton_tem_fused_mm_3", kGemm},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>", kReduction},
      {"void at::native::index_elementwise_kernel<128, 4>", kIndexing},
      {"void at::native::radixSortKVInPlace<2, -1, 128, 32>", kIndexing},
      {"my_own_kernel", kOtherKernel},
  };
  for (const auto& [name, work] : known) {
    INFO(name);
    CHECK(kWorkClassNames[kernel_class(name)] == std::string(kWorkClassNames[work]));
  }
  CHECK(kernel_class(nullptr) == kOtherKernel);
}

TEST_CASE("an address that comes to hold another kernel's name is looked at again") {
  NameCache names;
  REQUIRE(names.allocate());
  char name[32] = "nvjet_a";
  CHECK(names.find(name) == kGemm);
  CHECK(names.find(name) == kGemm);
  CHECK(names.names() == 1);
  std::strcpy(name, "ncclDevKernel_SendRecv");
  names.begin_buffer();
  CHECK(names.find(name) == kNcclSendRecv);
  CHECK(names.changed_total() == 1);
  CHECK(names.find(nullptr) == kOtherKernel);
}

TEST_CASE("more names than the table holds are still classed") {
  NameCache names;
  REQUIRE(names.allocate());
  std::vector<std::unique_ptr<std::string>> many;
  for (int i = 0; i < 6000; ++i) {
    many.push_back(std::make_unique<std::string>("nvjet_with_a_long_name_" + std::to_string(i)));
    CHECK(names.find(many.back()->c_str()) == kGemm);
  }
  CHECK(names.names() <= 4096);
  CHECK(names.uncached_total() > 0);
}

TEST_CASE("record times are taken as nanoseconds until the clock says otherwise") {
  constexpr uint64_t kNow = 1'800'000'000'000'000'000;
  RecordClock clock;
  clock.begin({kNow, kNow + 100, kNow + 300});
  CHECK_FALSE(clock.ticks());
  const auto span = clock.span(kNow + 5000, kNow + 7000);
  CHECK(span.plausible);
  CHECK(span.end_ns - span.begin_ns == 2000);
  CHECK_FALSE(clock.span(kNow + 7000, kNow + 5000).plausible);
  CHECK_FALSE(clock.span(12345, 12400).plausible);
  CHECK(clock.renew({kNow + 1000, kNow + 1100, kNow + 1200}));
  CHECK_FALSE(clock.renew({kNow + 2000, 777, kNow + 2200}));  // ticks all of a sudden: somebody's capture
}

TEST_CASE("ticks are calibrated, and the first records of a session may still be nanoseconds") {
  constexpr uint64_t kNow = 1'800'000'000'000'000'000, kTick = 70'000'000'000'000;
  RecordClock clock;
  clock.begin({kNow, kTick, kNow});
  CHECK(clock.ticks());
  CHECK(clock.renew({kNow + 1'000'000'000, kTick + 2'450'000'000, kNow + 1'000'000'000}));
  const auto span = clock.span(kTick + 245'000'000, kTick + 245'000'000 + 2'450'000);
  CHECK(span.plausible);
  CHECK(span.end_ns - span.begin_ns == doctest::Approx(1'000'000).epsilon(0.0001));
  CHECK(span.begin_ns == doctest::Approx(kNow + 100'000'000).epsilon(1e-9));
  const auto head = clock.span(kNow + 500, kNow + 900);
  CHECK(head.plausible);
  CHECK(head.begin_ns == kNow + 500);
}

TEST_CASE("busy time is the union over streams, whatever the order of the records") {
  CuptiHead sums{};
  Timeline timeline(&sums);
  REQUIRE(timeline.allocate());
  // Two streams, one record late in its own: 0-10 and 5-20 overlap, 30-40 stands alone.
  timeline.add(7, 1000, 1010, Timeline::kComputeKernel);
  timeline.add(7, 1030, 1040, Timeline::kComputeKernel);
  timeline.add(9, 1005, 1020, Timeline::kCopy);
  timeline.add(7, 1002, 1003, Timeline::kComputeKernel);
  timeline.settle(5000);
  CHECK(sums.busy_ns_total == 30);
  CHECK(sums.kernel_busy_ns_total == 20);
  CHECK(sums.gaps_total == 1);
  CHECK(sums.gap_ns_total == 10);
  CHECK(sums.late_total == 0);
}

TEST_CASE("NCCL is exposed where no other kernel runs") {
  CuptiHead sums{};
  Timeline timeline(&sums);
  REQUIRE(timeline.allocate());
  timeline.add(7, 1000, 1100, Timeline::kComputeKernel);
  timeline.add(20, 1050, 1180, Timeline::kNcclKernel);
  timeline.add(7, 1150, 1200, Timeline::kComputeKernel);
  timeline.settle(5000);
  CHECK(sums.nccl_busy_ns_total == 130);
  CHECK(sums.compute_busy_ns_total == 150);
  CHECK(sums.nccl_exposed_ns_total == 50);  // 1100 to 1150
  CHECK(sums.busy_ns_total == 200);
}

TEST_CASE("busy time is held back until no stream should deliver anything before it") {
  CuptiHead sums{};
  Timeline timeline(&sums);
  REQUIRE(timeline.allocate());
  timeline.add(7, 1000, 1010, Timeline::kComputeKernel);
  timeline.add(7, 2000, 2010, Timeline::kComputeKernel);
  timeline.settle(1500);
  CHECK(sums.busy_ns_total == 10);
  timeline.add(9, 1600, 1700, Timeline::kComputeKernel);
  timeline.settle(3000);
  CHECK(sums.busy_ns_total == 120);
  CHECK(sums.late_total == 0);
  timeline.add(9, 2500, 2600, Timeline::kComputeKernel);
  timeline.settle(4000);
  CHECK(sums.late_total == 1);
}

TEST_CASE("a lane never overflows, and what was not watched is no gap") {
  CuptiHead sums{};
  Timeline timeline(&sums);
  REQUIRE(timeline.allocate());
  for (uint64_t i = 0; i < 100'000; ++i) timeline.add(7, 1000 + 10 * i, 1005 + 10 * i, Timeline::kComputeKernel);
  timeline.interrupt();
  CHECK(sums.busy_ns_total == 500'000);
  CHECK(sums.gaps_total == 99'999);
  timeline.add(7, 90'000'000, 90'000'100, Timeline::kComputeKernel);
  timeline.settle(100'000'000);
  CHECK(sums.gaps_total == 99'999);
  CHECK(sums.busy_ns_total == 500'100);
}

TEST_CASE("more streams than lanes share them and lose nothing") {
  CuptiHead sums{};
  Timeline timeline(&sums);
  REQUIRE(timeline.allocate());
  for (uint32_t round = 0; round < 100; ++round) {
    for (uint32_t stream = 0; stream < 12; ++stream) {
      const uint64_t begin_ns = 1000 + 1000 * round + 10 * ((stream * 7) % 12);
      timeline.add(stream, begin_ns, begin_ns + 10, Timeline::kComputeKernel);
    }
  }
  timeline.settle(~uint64_t{0});
  CHECK(sums.busy_ns_total == 100 * 120);
}

namespace {
GuardReading reading(uint64_t seconds) {
  GuardReading now;
  now.mono_ns = seconds * 1'000'000'000;
  return now;
}
}  // namespace

TEST_CASE("the guard lets a layer within its budget run") {
  SelfGuard guard;
  guard.begin(reading(0));
  for (uint64_t second = 1; second < 200; ++second) {
    GuardReading now = reading(second);
    now.cpu_ns = second * 4'000'000;  // 0.4 %
    now.records_total = second * 10'000;
    now.device_bytes = 60u << 20;
    now.host_bytes = 30u << 20;
    CHECK(guard.check(now) == nullptr);
  }
}

TEST_CASE("the guard stops a layer that costs more than half a percent of a core for half a minute") {
  SelfGuard guard;
  guard.begin(reading(0));
  uint64_t stopped = 0;
  for (uint64_t second = 1; second < 100 && stopped == 0; ++second) {
    GuardReading now = reading(second);
    now.cpu_ns = second * 6'000'000;
    if (const char* reason = guard.check(now)) {
      stopped = second;
      CHECK(std::string(reason).find("0.5 %") != std::string::npos);
    }
  }
  CHECK(stopped == 30);
}

TEST_CASE("one busy burst does not stop the layer") {
  SelfGuard guard;
  guard.begin(reading(0));
  uint64_t cpu_ns = 0;
  for (uint64_t second = 1; second < 100; ++second) {
    cpu_ns += second < 15 ? 50'000'000 : 1'000'000;
    GuardReading now = reading(second);
    now.cpu_ns = cpu_ns;
    CHECK(guard.check(now) == nullptr);
  }
}

TEST_CASE("the guard stops for GPU memory, for host memory, for records without times, and for buffers that stay away") {
  const auto stops = [](auto change) {
    SelfGuard guard;
    guard.begin(reading(0));
    for (uint64_t second = 10; second <= 60; second += 10) {
      GuardReading now = reading(second);
      now.records_total = 10'000 * second;
      change(now, second);
      if (guard.check(now) != nullptr) return true;
    }
    return false;
  };
  CHECK(stops([](GuardReading& now, uint64_t) { now.device_bytes = 65u << 20; }));
  CHECK(stops([](GuardReading& now, uint64_t) { now.host_bytes = 33u << 20; }));
  CHECK(stops([](GuardReading& now, uint64_t second) { now.zero_times_total = 2'000 * second; }));
  CHECK(stops([](GuardReading& now, uint64_t second) { now.bad_times_total = 2'000 * second; }));
  CHECK(stops([](GuardReading& now, uint64_t second) { now.buffers_refused_total = second; }));
  CHECK_FALSE(stops([](GuardReading& now, uint64_t second) { now.zero_times_total = 100 * second; }));
  CHECK_FALSE(stops([](GuardReading& now, uint64_t) { now.buffers_refused_total = 1; }));
}

TEST_CASE("GPU memory is CUPTI's only as far as its records account for it, and torch's growth is torch's") {
  constexpr uint64_t kFree = uint64_t{40} << 30;
  DeviceMemory memory;
  memory.begin_lease(kFree, 0, 0);
  // torch reserves a gigabyte, NCCL takes half of one: nothing of it is CUPTI's.
  CHECK(memory.add_window(kFree - (uint64_t{1} << 30), uint64_t{1} << 30, 100'000) == 0);
  const uint64_t after_nccl = kFree - (uint64_t{3} << 29);
  CHECK(memory.add_window(after_nccl, uint64_t{1} << 30, 200'000) == 0);
  // Device buffers that are never recycled: 3.2 MB for each 100,000 records.
  uint64_t records = 200'000, bytes = 0;
  for (uint64_t window = 1; window <= 20; ++window) {
    records += 500'000;
    bytes = memory.add_window(after_nccl - window * 16'000'000, uint64_t{1} << 30, records);
  }
  CHECK(bytes == 320'000'000);
  // A lease later: what others took meanwhile is theirs, what was CUPTI's before stays so.
  memory.begin_lease(after_nccl - (uint64_t{4} << 30), uint64_t{1} << 30, records);
  CHECK(memory.add_window(after_nccl - (uint64_t{4} << 30), uint64_t{1} << 30, records) == 320'000'000);
  memory.begin_lease(after_nccl - 320'000'000, uint64_t{1} << 30, records);
  // Memory that is given back is given back, as fast as it can have been taken.
  CHECK(memory.add_window(after_nccl - 314'000'000, uint64_t{1} << 30, records) == 314'000'000);
}

TEST_CASE("torch's figure may be older than the driver's: what then seems to come and go erases no account") {
  constexpr uint64_t kFree = uint64_t{40} << 30, kGiB = uint64_t{1} << 30;
  DeviceMemory memory;
  memory.begin_lease(kFree, 0, 0);
  uint64_t free_bytes = kFree, bytes = 0;
  for (int window = 0; window < 10; ++window) bytes = memory.add_window(free_bytes -= 5'000'000, 0, 0);
  CHECK(bytes == 50'000'000);
  CHECK(memory.add_window(free_bytes -= kGiB, 0, 0) == 50'000'000);   // torch has grown and not told it yet
  CHECK(memory.add_window(free_bytes, kGiB, 0) == 50'000'000);        // now it has
  CHECK(memory.add_window(free_bytes -= 5'000'000, kGiB, 0) == 55'000'000);
}
