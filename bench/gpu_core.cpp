// What one CUPTI record costs from buffer to sums, and one publication of the page: pinned, thread CPU time, on the
// doubles of libcuda and libcupti. Prints one `name value` a line; bench/gpu_core.py builds and reads it.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/page_reader.h"
#include "core/page_writer.h"
#include "core/thread.h"
#include "doubles/cupti/cupti_double.h"
#include "gpu/activity_sums.h"
#include "gpu/cupti_layer.h"
#include "gpu/event_layer.h"
#include "gpu/library.h"

using namespace pymon;

namespace {

constexpr size_t kBufferBytes = BufferPool::kBufferBytes;
constexpr int kBuffers = 24;  // beyond the second-level cache, as in a trainer
constexpr int kRounds = 61;
constexpr int kNames = 200;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Names as long as torch's (40 to 300 characters), drawn by Zipf's law.
struct Names {
  Names() {
    const char* stems[] = {
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "_ZN5flash23flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi128ELi4ELb0ELb0EN7cutlass10bfloat16_t"
        "E19Flash_kernel_traitsILi128ELi64ELi128ELi4ES3_EELb0ELb0ELb0ELb0ELb1ELb0ELb0ELb0EEEv16Flash_fwd_params",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_"};
    std::mt19937 random(7);
    for (int i = 0; i < kNames; ++i) {
      text.push_back(stems[i % 5] + std::string(random() % 60, 'x') + std::to_string(i));
    }
    for (const std::string& one : text) pointers.push_back(one.c_str());
    std::vector<double> weights;
    for (int i = 0; i < kNames; ++i) weights.push_back(1.0 / (i + 1));
    std::discrete_distribution<uint32_t> zipf(weights.begin(), weights.end());
    for (int i = 0; i < 100003; ++i) order.push_back(zipf(random));
  }
  std::vector<std::string> text;
  std::vector<const char*> pointers;
  std::vector<uint32_t> order;
};

void records() {
  const cupti::Api api = load_cupti(Loading::kOnlyLoaded).value().api;
  Names names;
  std::vector<uint8_t*> buffers;
  std::vector<size_t> valid;
  size_t total = 0;
  for (int i = 0; i < kBuffers; ++i) {
    auto* buffer = static_cast<uint8_t*>(std::aligned_alloc(4096, kBufferBytes));
    size_t count = 0;
    std::rotate(names.order.begin(), names.order.begin() + 4801, names.order.end());
    valid.push_back(
        cupti_double_fill(buffer, kBufferBytes, names.pointers.data(), names.order.data(), names.order.size(), &count));
    buffers.push_back(buffer);
    total += count;
  }
  auto sums = std::make_unique<ActivitySums>();
  if (!sums->allocate()) std::abort();
  sums->clock().begin({real_ns(), real_ns(), real_ns()});
  std::vector<double> walk, whole;
  volatile uint64_t sink = 0;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t begin_ns = thread_cpu_ns();
    for (int i = 0; i < kBuffers; ++i) {
      cupti::Activity* record = nullptr;
      while (api.cuptiActivityGetNextRecord(buffers[i], valid[i], &record) == 0) sink = sink + record->kind;
    }
    walk.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / static_cast<double>(total));
    sums->interrupt();  // the same times come again
    begin_ns = thread_cpu_ns();
    for (int i = 0; i < kBuffers; ++i) {
      sums->add_buffer(api, buffers[i], valid[i]);
      sums->settle(~uint64_t{0} >> 3);
    }
    whole.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / static_cast<double>(total));
  }
  std::printf("records %zu\nwalk_ns %.2f\nrecord_ns %.2f\n", total, median(walk), median(whole));
}

void publish() {
  const uint8_t id[16] = {};
  PageWriter* page = PageWriter::create(id).value();
  auto reader = std::move(PageReader::open(page->fd()).value());
  auto body = std::make_unique<CuptiBody>();
  auto copy = std::make_unique<CuptiBody>();
  // A step of training touches some classes of work; `all` is the worst case.
  constexpr uint32_t kTypical = 1u << kGemm | 1u << kElementwise | 1u << kReduction | 1u << kAttention |
                                1u << kOptimizerKernel | 1u << kNcclAllReduce | 1u << kCopyHostToDevice | 1u << kSet;
  constexpr int kTimes = 1000;
  for (const auto& [name, changed] : {std::pair<const char*, uint32_t>{"publish_ns", kTypical}, {"publish_all_ns", ~0u}}) {
    std::vector<double> times;
    for (int round = 0; round < 201; ++round) {
      const uint64_t begin_ns = thread_cpu_ns();
      for (int i = 0; i < kTimes; ++i) {
        ++body->head.records_total;
        page->publish_cupti(*body, changed, false);
      }
      times.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / kTimes);
    }
    std::printf("%s %.1f\n", name, median(times));
  }
  std::vector<double> times;
  for (int round = 0; round < 201; ++round) {
    const uint64_t begin_ns = thread_cpu_ns();
    for (int i = 0; i < kTimes; ++i) reader->cupti(copy.get());
    times.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / kTimes);
  }
  std::printf("copy_ns %.1f\n", median(times));
}

// The whole layer at 50,000 records a second; its thread's own CPU time.
void live(double seconds) {
  const uint8_t id[16] = {};
  PageWriter* page = PageWriter::create(id).value();
  auto reader = std::move(PageReader::open(page->fd()).value());
  const cuda::Api cuda = load_cuda(Loading::kOnlyLoaded).value();
  CuptiLayer* layer = CuptiLayer::start(page, &cuda, CuptiOptions{});
  while (layer->reason() != "running") std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto body = std::make_unique<CuptiBody>();
  reader->cupti(body.get());
  const uint64_t cpu_ns = body->head.own_cpu_ns_total, begin_ns = mono_ns();
  const auto count = static_cast<long>(seconds * 50000);
  std::string script = "rate 50000\n";
  for (long i = 0; i < count; i += 1000) {
    script += "kernel _ZN2at6native29vectorized_elementwise_kernelILi4E 1500 0 7 700\nkernel nvjet_hsh 9000 0 7 300\n";
  }
  cupti_double_play(script.c_str());
  const double took_ns = static_cast<double>(mono_ns() - begin_ns);
  for (int i = 0; i < 100 && body->head.records_total < static_cast<uint64_t>(count); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    reader->cupti(body.get());
  }
  std::printf("live_records %llu\nlive_rate %.0f\ncore_ratio_at_50k %.5f\nhost_mib %.1f\n",
              static_cast<unsigned long long>(body->head.records_total), static_cast<double>(count) / took_ns * 1e9,
              static_cast<double>(body->head.own_cpu_ns_total - cpu_ns) / took_ns,
              static_cast<double>(body->head.host_bytes) / (1 << 20));
  layer->stop("bench over", 1000);
}

// What a mark costs the training thread on the double: our part of it, since the double's calls are nearly free.
void marks() {
  const uint8_t id[16] = {};
  PageWriter* page = PageWriter::create(id).value();
  EventLayer* layer = EventLayer::start(page, load_cuda(Loading::kOnlyLoaded).value(), EventOptions{});
  std::vector<double> times;
  for (uint64_t round = 0; round < 101; ++round) {
    const uint64_t begin_ns = thread_cpu_ns();
    for (uint64_t i = 0; i < 100; ++i) layer->mark(nullptr, kForward, 0);
    times.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / 100);
  }
  std::printf("mark_ns %.1f\n", median(times));
  layer->stop("bench over", 1000);
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 5.0;
  marks();
  live(seconds);
  pin(sched_getcpu());
  records();
  publish();
  return 0;
}
