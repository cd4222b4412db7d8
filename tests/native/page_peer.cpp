// A trainer's native half without Python, for tests/link: `page_peer layout` prints the layout as C++ has it;
// `page_peer` makes a page, prints its descriptor, and obeys lines on stdin until their end:
//   publish N     a body whose word i is N + i
//   push A B      the steps A to B, word i of each being step * 100 + i
//   gpu N         a GPU and a CUPTI body likewise, reasons included
//   gpu_push A B  the GPU times of steps A to B, word i of each being step * 100 + i
//   events N A B  an events body likewise, and the events A to B
//   run N         a run body likewise
//   collectives N a body of collectives likewise, two groups
//   memory N      a body of memory likewise, two devices
//   recorder N    a body of the flight recorder likewise, two groups, two operations, two arrivals
//   die           leaves the seqlock as a writer does that dies in mid-copy
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "core/page_writer.h"

using namespace pymon;

namespace {

void print(const char* name, unsigned long long value) { std::printf("%s %llu\n", name, value); }

int print_layout() {
  print("MAJOR", kMajor);
  print("MINOR", kMinor);
  print("PHASE_SLOTS", kPhases);
  print("USER_PHASES", kUserPhases);
  print("USER_PHASE_FIRST", kUserPhaseFirst);
  print("USER_PHASE_NAME_BYTES", kUserPhaseNameBytes);
  print("HISTOGRAM_BUCKETS", kHistogramBuckets);
  print("HISTOGRAM_FIRST_BOUND_NS", 1ull << kHistogramFirstShift);
  print("COUNT_LAST", kCountBackward);
  print("STEP_PHASES", kOther + 1);
  print("STEP_PROFILED", kStepProfiled);
  print("STEP_ESTIMATED", kStepEstimated);
  print("STEP_UNPHASED", kStepUnphased);
  print("SHED_KERNELS", kShedKernels);
  print("SHED_PHASES", kShedPhases);
  print("SHED_RECORDS", kShedRecords);
  print("SHED_ALL", kShedAll);
  print("DOING_SHIFT", kDoingShift);
  print("HEADER_BYTES", sizeof(Header));
  print("TRAIN_OFFSET", kTrainOffset);
  print("TRAIN_BODY_IN_SECTION", offsetof(TrainSection, body));
  print("TRAIN_WORDS", kTrainWords);
  print("TRAIN_BODY_BYTES", sizeof(TrainBody));
  print("TRAIN_SECTION_BYTES", sizeof(TrainSection));
  print("TRAIN_PHASES_BYTE", offsetof(TrainBody, phase_ns_total));
  print("TRAIN_STEP_HISTOGRAM_BYTE", offsetof(TrainBody, step_histogram));
  print("TRAIN_PHASE_HISTOGRAMS_BYTE", offsetof(TrainBody, phase_histogram));
  print("TRAIN_NAMES_BYTE", offsetof(TrainBody, user_phase_names));
  print("RING_OFFSET", kRingOffset);
  print("RING_ENTRIES", kRingEntries);
  print("RING_ENTRY_BYTES", sizeof(RingEntry));
  print("LAYER_STATES", kLayerDisarmed + 1);
  print("REASON_BYTES", kReasonBytes);
  print("GPU_OFFSET", kGpuOffset);
  print("GPU_BODY_BYTES", sizeof(GpuBody));
  print("GPU_PHASES_BYTE", offsetof(GpuBody, phase_ns_total));
  print("GPU_HISTOGRAM_BYTE", offsetof(GpuBody, step_histogram));
  print("GPU_REASON_BYTE", offsetof(GpuBody, reason));
  print("CUPTI_OFFSET", kCuptiOffset);
  print("WORK_CLASSES", kWorkClasses);
  print("WORK_BUCKETS", kWorkBuckets);
  print("WORK_SUMS_BYTES", sizeof(WorkSums));
  print("CUPTI_REASON_BYTE", offsetof(CuptiHead, reason));
  print("CUPTI_GAPS_BYTE", offsetof(CuptiHead, gap_histogram));
  print("CUPTI_HEAD_BYTES", sizeof(CuptiHead));
  print("CUPTI_BODY_BYTES", sizeof(CuptiBody));
  print("GPU_RING_OFFSET", kGpuRingOffset);
  print("GPU_RING_ENTRIES", kGpuRingEntries);
  print("GPU_RING_ENTRY_BYTES", sizeof(GpuRingEntry));
  print("EVENTS_OFFSET", kEventsOffset);
  print("EVENT_KINDS", kEventKinds);
  print("EVENT_SUMS_BYTE", offsetof(EventsBody, sums));
  print("EVENT_UNSEEN_BYTE", offsetof(EventsBody, unseen));
  print("EVENTS_BODY_BYTES", sizeof(EventsBody));
  print("EVENT_RING_BYTE", offsetof(EventsSection, ring));
  print("EVENT_RING_ENTRIES", kEventRingEntries);
  print("EVENT_ENTRY_BYTES", sizeof(EventEntry));
  print("EVENTS_BYTES", sizeof(EventsSection));
  print("EVALUATION_SLOT", kEvaluation);
  print("CHECKPOINT_SLOT", kCheckpoint);
  print("RUN_OFFSET", kRunOffset);
  print("RUN_WORDS", kRunWords);
  print("RUN_BODY_BYTES", sizeof(RunBody));
  print("RUN_STATES", kRunCheckpointing + 1);
  print("RUN_WAIT_HISTOGRAM_BYTE", offsetof(RunBody, wait_histogram));
  print("COLLECTIVES_OFFSET", kCollectivesOffset);
  print("COLLECTIVE_GROUPS", kCollectiveGroups);
  print("GROUP_NAME_BYTES", kGroupNameBytes);
  print("COLLECTIVES_BODY_BYTES", sizeof(CollectivesBody));
  print("MEMORY_OFFSET", kMemoryOffset);
  print("ALLOCATOR_VALUES", kAllocatorValues);
  print("ALLOCATOR_DEVICES", kAllocatorDevices);
  print("DEVICE_UUID_BYTES", kDeviceUuidBytes);
  print("HOST_VALUES", kHostValues);
  print("MEMORY_HOST_BYTE", offsetof(MemoryBody, host_read_mono_ns));
  print("MEMORY_ALLOCATOR_BYTE", offsetof(MemoryBody, allocator));
  print("MEMORY_BODY_BYTES", sizeof(MemoryBody));
  print("RECORDER_OFFSET", kRecorderOffset);
  print("RECORDED_GROUPS", kRecordedGroups);
  print("RECORDED_OPS", kRecordedOps);
  print("RECORDER_REASON_BYTE", offsetof(RecorderBody, reason));
  print("RECORDER_GROUPS_BYTE", offsetof(RecorderBody, group));
  print("RECORDER_OPS_BYTE", offsetof(RecorderBody, op));
  print("RECORDER_ARRIVALS_BYTE", offsetof(RecorderBody, arrival));
  print("RECORDER_ARRIVALS", kArrivals);
  print("RECORDER_BODY_BYTES", sizeof(RecorderBody));
  print("PAGE_BYTES", kPageBytes);
  return 0;
}

template <typename T>
void fill(T* words_only, uint64_t first) {
  uint64_t words[sizeof(T) / 8];
  for (uint64_t i = 0; i < sizeof(T) / 8; ++i) words[i] = first + i;
  std::memcpy(words_only, words, sizeof words);
}

void push(PageWriter& writer, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step <= last; ++step) {
    RingEntry entry;
    fill(&entry, step * 100);
    entry.step = step;
    writer.push_step(entry);
  }
}

void publish_gpu(PageWriter& writer, uint64_t first) {
  GpuBody gpu;
  CuptiBody cupti;
  fill(&gpu, first);
  fill(&cupti, first);
  gpu.state = kLayerRunning;
  cupti.head.state = kLayerDisarmed;
  std::memset(gpu.reason, 0, sizeof gpu.reason);
  std::strcpy(gpu.reason, "running");
  std::memset(cupti.head.reason, 'x', sizeof cupti.head.reason);  // a writer that forgot the end
  writer.publish_gpu(gpu);
  writer.publish_cupti(cupti, ~0u, true);
}

void publish_events(PageWriter& writer, uint64_t first, uint64_t from, uint64_t to) {
  EventsBody body;
  fill(&body, first);
  std::memset(body.unseen, 0, sizeof body.unseen);
  std::strcpy(body.unseen, "no CUDA");
  writer.publish_events(body);
  for (uint64_t number = from; number <= to; ++number) {
    EventEntry entry;
    fill(&entry, number * 100);
    entry.number = number;
    writer.push_event(entry);
  }
}

void die(const PageWriter& writer) {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer.fd(), 0);
  if (page == MAP_FAILED) return;
  reinterpret_cast<uint64_t*>(static_cast<char*>(page) + kTrainOffset)[0] |= 1;
  munmap(page, kPageBytes);
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "layout") == 0) return print_layout();
  uint8_t id[16];
  for (uint8_t i = 0; i < 16; ++i) id[i] = static_cast<uint8_t>(0xf0 + i);
  auto made = PageWriter::create(id);
  if (!made.ok()) return std::fprintf(stderr, "%s\n", made.error().text.c_str()), 1;
  PageWriter& writer = *made.value();
  std::printf("%d\n", writer.fd());
  std::fflush(stdout);

  char line[128];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    unsigned long long a = 0, b = 0, c = 0;
    if (std::sscanf(line, "publish %llu", &a) == 1) {
      fill(&writer.body(), a);
      writer.publish();
    } else if (std::sscanf(line, "push %llu %llu", &a, &b) == 2) {
      push(writer, a, b);
    } else if (std::sscanf(line, "gpu %llu", &a) == 1) {
      publish_gpu(writer, a);
    } else if (std::sscanf(line, "collectives %llu", &a) == 1) {
      CollectivesBody body;
      fill(&body, a);
      body.groups = 2;
      for (auto& group : body.group) std::memset(group.name, 0, sizeof group.name);
      std::strcpy(body.group[1].name, "tensor");
      writer.publish_collectives(body);
    } else if (std::sscanf(line, "memory %llu", &a) == 1) {
      MemoryBody body;
      fill(&body, a);
      body.devices = 2;
      for (auto& device : body.allocator) std::memset(device.uuid, 0, sizeof device.uuid);
      std::strcpy(body.allocator[1].uuid, "GPU-1");
      body.allocator[1].told = 1 << kAllocated | 1 << kOoms;
      writer.publish_memory(body);
    } else if (std::sscanf(line, "recorder %llu", &a) == 1) {
      RecorderBody body;
      fill(&body, a);
      body.groups = body.ops = body.arrivals = 2;
      std::strcpy(body.reason, "mpi: none");
      std::strcpy(body.group[1].name, "tensor");
      std::strcpy(body.group[1].backend, "gloo");
      body.group[0].open_op_plus_1 = 0;
      body.group[1].open_op_plus_1 = 2;
      std::strcpy(body.op[1].name, "all_reduce");
      body.op[0].group = body.op[1].group = body.arrival[0].group = body.arrival[1].group = 1;
      writer.publish_recorder(body);
    } else if (std::sscanf(line, "events %llu %llu %llu", &a, &b, &c) == 3) {
      publish_events(writer, a, b, c);
    } else if (std::sscanf(line, "run %llu", &a) == 1) {
      RunBody run;
      fill(&run, a);
      writer.publish_run(run);
    } else if (std::sscanf(line, "gpu_push %llu %llu", &a, &b) == 2) {
      for (unsigned long long step = a; step <= b; ++step) {
        GpuRingEntry entry;
        fill(&entry, step * 100);
        entry.step = step;
        writer.push_gpu_step(entry);
      }
    } else if (std::strncmp(line, "die", 3) == 0) {
      die(writer);
    }
    std::printf("done\n");
    std::fflush(stdout);
  }
  delete made.value();
  return 0;
}
