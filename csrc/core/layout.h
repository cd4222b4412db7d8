// The page: what a training process publishes, as bytes in a sealed memfd.
//
// Append-only: a field keeps its offset for as long as the major number stands; new ones go into reserved words or new
// sections, and the minor number grows. The daemon reads this major and the one before. `pymon/link/layout.py` is the
// Python twin; tests/link compares the two byte for byte.
//
// All numbers are little-endian and 8 bytes wide (u64) unless said otherwise. Durations are nanoseconds, clocks are
// CLOCK_MONOTONIC (`mono`) or CLOCK_REALTIME (`real`).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layout_collectives.h"
#include "core/layout_events.h"
#include "core/layout_memory.h"
#include "core/layout_recorder.h"

namespace pymon {

constexpr uint32_t kMajor = 1;
// 1: the GPU sections; 2: events; 3: the run section, samples, evaluations, checkpoints; 4: collectives;
// 5: memory; 6: the flight recorder
constexpr uint32_t kMinor = 6;
constexpr char kMagic[8] = {'P', 'Y', 'M', 'O', 'N', 'P', 'G', '\0'};  // stored last, so a page without it is not ready

constexpr uint32_t kPhases = 16;      // slots: 0..4 part the step, 5 and 6 lie beside it, 8..15 are pymon.phase(name)
constexpr uint32_t kUserPhases = 8;
constexpr uint32_t kUserPhaseFirst = 8;
constexpr uint32_t kUserPhaseNameBytes = 32;  // UTF-8, NUL padded, cut at 31 bytes
constexpr uint32_t kHistogramBuckets = 32;
constexpr uint32_t kHistogramFirstShift = 10;  // bucket 0: below 2^10 ns; bucket i: below 2^(10+i) ns; 31: all others
constexpr uint32_t kRingEntries = 4096;        // design: the last 4,096 steps; a power of two

constexpr uint32_t kDoingShift = 56;  // of TrainBody.doing: the clock below it runs for 800 days

enum Phase : uint32_t {
  kDataWait = 0, kForward = 1, kBackward = 2, kOptimizer = 3, kOther = 4,
  // Since minor 3. Between two steps, and no part of either's duration: an entry's end less its duration is therefore
  // not the end of the entry before.
  kEvaluation = 5, kCheckpoint = 6,
};

// How steps are counted; `Counting` in pymon/model/training.py.
enum Counting : uint64_t { kCountNone = 0, kCountOptimizer = 1, kCountExplicit = 2, kCountBackward = 3 };

enum StepFlags : uint32_t { kStepProfiled = 1, kStepEstimated = 2, kStepUnphased = 4 };

// What the probe leaves away, each with all before it: docs/probe.md, "Budget". The last one is `pymon disarm`.
enum Shed : uint64_t { kShedNothing = 0, kShedKernels = 1, kShedPhases = 2, kShedRecords = 3, kShedAll = 4 };

// Written once, before the magic.
struct Header {                 // offset
  char magic[8];                //   0
  uint32_t major, minor;        //   8, 12
  uint64_t page_bytes;          //  16  the memfd's size
  uint64_t pid;                 //  24  in the writer's pid namespace
  uint64_t start_ticks;         //  32  field 22 of /proc/self/stat: tells a reused pid
  uint64_t created_mono_ns;     //  40
  uint64_t created_real_ns;     //  48
  uint8_t attach_id[16];        //  56  random; the page's identity
  uint64_t train_offset, train_bytes;  // 72, 80  TrainSection; reserved for later sections: offset 0 means absent
  uint64_t gpu_offset, gpu_bytes;      // 88, 96  GpuSection (since minor 1)
  uint64_t cupti_offset, cupti_bytes;  // 104, 112  CuptiSection (since minor 1)
  uint64_t ring_offset, ring_entry_bytes, ring_entries;  // 120, 128, 136
  uint64_t gpu_ring_offset, gpu_ring_entry_bytes, gpu_ring_entries;  // 144, 152, 160  GpuRingEntry (since minor 1)
  uint64_t run_offset, run_bytes;      // 168, 176  RunSection (since minor 3)
  uint64_t events_offset, events_bytes;  // 184, 192  EventsSection (since minor 2)
  uint64_t collectives_offset, collectives_bytes;  // 200, 208  CollectivesSection (since minor 4)
  uint64_t memory_offset, memory_bytes;  // 216, 224  MemorySection (since minor 5)
  uint64_t recorder_offset, recorder_bytes;  // 232, 240  RecorderSection (since minor 6)
  uint64_t reserved[1];         // 248
};
static_assert(sizeof(Header) == 256, "header is 256 bytes");
static_assert(offsetof(Header, attach_id) == 56 && offsetof(Header, train_offset) == 72, "header layout");
static_assert(offsetof(Header, ring_offset) == 120 && offsetof(Header, gpu_ring_offset) == 144, "header layout");
static_assert(offsetof(Header, run_offset) == 168, "header layout");
static_assert(offsetof(Header, events_offset) == 184 && offsetof(Header, collectives_offset) == 200, "header layout");
static_assert(offsetof(Header, memory_offset) == 216, "header layout");

// The training thread's section body. Words only, so that it is copied as relaxed atomic words under the seqlock.
struct TrainBody {                         // word index
  uint64_t counting;                       //  0  enum Counting
  uint64_t steps_total;                    //  1
  uint64_t backwards_total;                //  2  outermost backward passes
  uint64_t optimizer_calls_total;          //  3  step calls by the armed rule
  uint64_t batches_total;                  //  4  outermost fetches by the training thread
  uint64_t step_ns_total;                  //  5  sum of all finished steps
  uint64_t first_boundary_mono_ns;         //  6  0 before the first
  uint64_t last_boundary_mono_ns;          //  7  0 before the first
  uint64_t own_ns_total;                   //  8  time spent in the probe's hooks
  uint64_t capturing;                      //  9  1 while a capture runs here
  uint64_t loader_workers_plus_1;          // 10  0: no loader seen
  uint64_t prefetches_total;               // 11  fetches by other threads: never data wait
  uint64_t optimizers_seen;                // 12  distinct ones in the last iteration
  uint64_t training_tid;                   // 13
  uint64_t user_phases;                    // 14  names in use
  uint64_t dropped_total;                  // 15  what the probe had no room for (user phases, optimizers)
  uint64_t samples_total;                  // 16  of the finished steps; 0: not known (since minor 3, as the next three)
  uint64_t tokens_total;                   // 17  likewise
  uint64_t stall_ns_total;                 // 18  of step_ns_total: what blocked steps took beyond the usual
  uint64_t usual_step_ns;                  // 19  running mean of the steps; 0 before the second
  uint64_t doing;                          // 20  what goes on now: Phase + 1 in the top byte, since when (mono) below it;
                                           //     0: nothing yet, or not told. Also stored alone, outside the seqlock.
  uint64_t shed;                           // 21  enum Shed
  uint64_t sheds_total;                    // 22  times that the budget took a layer away
  uint64_t overhead_ppm;                   // 23  own cost of the last window per step time (bits 0-31), its budget (32-63)
  uint64_t phase_ns_total[kPhases];        // 24
  uint64_t step_histogram[kHistogramBuckets];                    // 40
  uint64_t phase_histogram[5][kHistogramBuckets];                // 72  slots 0..4
  char user_phase_names[kUserPhases][kUserPhaseNameBytes];       // 232
};
constexpr uint64_t kTrainWords = 264;
constexpr uint64_t kTrainTotalsWords = 40;  // all but the histograms and the names
static_assert(sizeof(TrainBody) == kTrainWords * 8, "train body");
static_assert(offsetof(TrainBody, doing) == 20 * 8, "train body");
static_assert(offsetof(TrainBody, phase_ns_total) == 24 * 8, "train body");
static_assert(offsetof(TrainBody, phase_histogram) == 72 * 8, "train body");
static_assert(offsetof(TrainBody, user_phase_names) == 232 * 8, "train body");

// A section: its seqlock word on a cache line of its own, then the body.
struct TrainSection {
  uint64_t seq;
  uint64_t pad[7];
  TrainBody body;
};
static_assert(offsetof(TrainSection, body) == 64, "section body starts on the next cache line");

// One finished step. `step` is set to 0 first and to the step's number last, so a reader that sees the same number
// before and after its copy has a whole record; the entry of step n is n % kRingEntries.
struct RingEntry {                         // word index
  uint64_t step;                           //  0  1 is the first
  uint64_t end_mono_ns;                    //  1
  uint64_t duration_ns;                    //  2
  uint64_t counts;                         //  3  backwards (bits 0-15), optimizer calls (16-31), batches (32-47)
  uint64_t flags;                          //  4  enum StepFlags
  uint64_t own_ns;                         //  5
  uint64_t samples;                        //  6  0: not known (since minor 3)
  uint64_t tokens;                         //  7  likewise
  uint64_t phase_ns[kPhases];              //  8
};
static_assert(sizeof(RingEntry) == 192, "ring entry");

// --- the GPU layers (csrc/gpu). Each may be off, and then says why in words. --------------------------------------

enum LayerState : uint64_t {
  kLayerOff = 0,      // not started: no CUDA in this process yet
  kLayerRunning = 1,
  kLayerYielded = 2,  // lent to another profiler for a while
  kLayerAbsent = 3,   // cannot run here
  kLayerDisarmed = 4, // ran, and was switched off: over its budget, or at the end of the process
};
constexpr uint32_t kReasonBytes = 160;  // UTF-8, NUL padded, cut at 159 bytes

// What CUDA events measured, written by the poller thread. The time between two marks on torch's current stream
// belongs to the phase between them, so a phase's GPU time holds the stream's work of that phase and its waits.
struct GpuBody {                           // word index
  uint64_t state;                          //  0  enum LayerState
  uint64_t publish_mono_ns;                //  1
  uint64_t steps_timed_total;              //  2  steps whose marks all came back
  uint64_t steps_untimed_total;            //  3  steps with a mark missing, or left out to bound the cost
  uint64_t step_ns_total;                  //  4  GPU time of the timed steps
  uint64_t last_step;                      //  5  the newest timed one; 0: none
  uint64_t last_step_ns;                   //  6
  uint64_t marks_total;                    //  7  events recorded
  uint64_t dropped_total;                  //  8  overwritten before the poller saw them
  uint64_t skipped_capturing_total;        //  9  marks on a stream that was capturing a CUDA graph
  uint64_t skipped_context_total;          // 10  marks in another CUDA context than the first
  uint64_t failed_total;                   // 11  events that CUDA refused
  uint64_t pending;                        // 12  marks the GPU has not reached
  uint64_t own_cpu_ns_total;               // 13  the poller thread's
  uint64_t stride;                         // 14  every how many steps one is timed
  uint64_t reserved0;                      // 15
  uint64_t phase_ns_total[8];              // 16  slots 0..4 of Phase
  uint64_t step_histogram[kHistogramBuckets];  // 24
  char reason[kReasonBytes];               // 56
  uint64_t reserved[12];                   // 76
};
constexpr uint64_t kGpuWords = 88;
static_assert(sizeof(GpuBody) == kGpuWords * 8, "gpu body");
static_assert(offsetof(GpuBody, phase_ns_total) == 16 * 8 && offsetof(GpuBody, reason) == 56 * 8, "gpu body");

struct GpuSection {
  uint64_t seq;
  uint64_t pad[7];
  GpuBody body;
};

// GPU time of one step; the same rules as RingEntry, the entry of step n is n % kGpuRingEntries.
struct GpuRingEntry {                      // word index
  uint64_t step;                           //  0
  uint64_t gpu_ns;                         //  1
  uint64_t phase_ns[5];                    //  2
  uint64_t reserved;                       //  7
};
constexpr uint32_t kGpuRingEntries = 1024;
static_assert(sizeof(GpuRingEntry) == 64, "gpu ring entry");

// What a record of CUPTI is, by its kind or by the kernel's name (csrc/gpu/kernel_class.cpp). Append only.
enum WorkClass : uint32_t {
  kGemm, kAttention, kConvolution, kElementwise, kReduction, kNormalisation, kSoftmax, kEmbedding, kIndexing,
  kOptimizerKernel, kOtherKernel,
  kNcclAllReduce, kNcclAllGather, kNcclReduceScatter, kNcclBroadcast, kNcclReduce, kNcclSendRecv, kNcclOther,
  kCopyHostToDevice, kCopyDeviceToHost, kCopyDeviceToDevice, kCopyPeer, kCopyOther, kSet,
  kSyncOfEvent, kSyncOfStream, kSyncOfContext, kStreamWait,
  kWorkClassesUsed,
};
constexpr uint32_t kWorkClasses = 32;
static_assert(kWorkClassesUsed <= kWorkClasses, "room for the classes");
constexpr const char* kWorkClassNames[kWorkClassesUsed] = {
    "gemm", "attention", "convolution", "elementwise", "reduction", "normalisation", "softmax", "embedding", "indexing",
    "optimizer", "other",
    "nccl_all_reduce", "nccl_all_gather", "nccl_reduce_scatter", "nccl_broadcast", "nccl_reduce", "nccl_send_recv",
    "nccl_other",
    "copy_host_to_device", "copy_device_to_host", "copy_device_to_device", "copy_peer", "copy_other", "set",
    "sync_event", "sync_stream", "sync_context", "stream_wait",
};
constexpr bool is_nccl(uint32_t work) { return work >= kNcclAllReduce && work <= kNcclOther; }

constexpr uint32_t kWorkBuckets = 24;  // as the histograms above: bucket 0 below 2^10 ns, the last one from 2^33 ns on

struct WorkSums {
  uint64_t count, ns_total, ns_max, bytes_total;
  uint64_t histogram[kWorkBuckets];
};
static_assert(sizeof(WorkSums) == 28 * 8, "work sums");

// Sums over CUPTI's records, written by the aggregator thread. GPU times are summed over the process's devices.
struct CuptiHead {                         // word index
  uint64_t state;                          //  0  enum LayerState
  uint64_t publish_mono_ns;                //  1
  uint64_t cupti_version;                  //  2  CUPTI's API number, as 130001
  uint64_t last_error;                     //  3  the last CUptiResult that was not 0
  uint64_t records_total;                  //  4
  uint64_t dropped_total;                  //  5  by CUPTI, for want of a buffer
  uint64_t zero_times_total;               //  6  records without times: CUPTI lacked device memory
  uint64_t bad_times_total;                //  7  records whose times cannot be
  uint64_t unknown_total;                  //  8  records of a kind that was not asked for
  uint64_t late_total;                     //  9  records older than what busy time was summed up to
  uint64_t buffers_total;                  // 10  that came back
  uint64_t buffers_out;                    // 11  lent to CUPTI now
  uint64_t buffers_refused_total;          // 12  asked for when all were out
  uint64_t buffers_lost_total;             // 13  lent, and another client took over
  uint64_t host_bytes;                     // 14  buffers and tables
  uint64_t own_cpu_ns_total;               // 15  the aggregator thread's
  uint64_t names;                          // 16  distinct kernel names
  uint64_t names_changed_total;            // 17  addresses that came to hold another name
  uint64_t names_uncached_total;           // 18  look-ups beyond the table
  uint64_t handovers_total;                // 19  leases taken back
  uint64_t stolen_total;                   // 20  times that another client was noticed
  uint64_t ticks;                          // 21  1: record times are processor ticks, calibrated
  uint64_t busy_ns_total;                  // 22  union of kernels, copies and sets over streams
  uint64_t kernel_busy_ns_total;           // 23  union of kernels
  uint64_t compute_busy_ns_total;          // 24  union of kernels without NCCL's
  uint64_t nccl_busy_ns_total;             // 25  union of NCCL's kernels
  uint64_t nccl_exposed_ns_total;          // 26  of that, what no other kernel overlapped
  uint64_t gap_ns_total;                   // 27  idle time between busy stretches
  uint64_t gaps_total;                     // 28
  uint64_t kernels_total;                  // 29
  uint64_t graph_kernels_total;            // 30  of these, launched by a CUDA graph
  uint64_t launches_total;                 // 31  kernel launches, a graph as one
  uint64_t first_gpu_ns, last_gpu_ns;      // 32, 33  CLOCK_REALTIME of the first begin, the last end
  uint64_t devices;                        // 34  seen in the records
  uint64_t device_bytes;                   // 35  GPU memory taken since arming that torch's allocator does not explain
  uint64_t yielded_ns_total;               // 36  time lent to others
  uint64_t flushes_total;                  // 37
  uint64_t reserved[6];                    // 38
  char reason[kReasonBytes];               // 44
  uint64_t gap_histogram[kWorkBuckets];    // 64
  uint64_t reserved1[8];                   // 88
};
constexpr uint64_t kCuptiHeadWords = 96;
static_assert(sizeof(CuptiHead) == kCuptiHeadWords * 8, "cupti head");
static_assert(offsetof(CuptiHead, reason) == 44 * 8 && offsetof(CuptiHead, gap_histogram) == 64 * 8, "cupti head");

struct CuptiBody {
  CuptiHead head;
  WorkSums work[kWorkClasses];
};
constexpr uint64_t kCuptiWords = kCuptiHeadWords + kWorkClasses * 28;
static_assert(sizeof(CuptiBody) == kCuptiWords * 8, "cupti body");

struct CuptiSection {
  uint64_t seq;
  uint64_t pad[7];
  CuptiBody body;
};

// --- the run beside its steps (since minor 3), written by the training threads under the GIL -------------------------

enum RunState : uint64_t { kRunStarting = 0, kRunTraining = 1, kRunEvaluating = 2, kRunCheckpointing = 3 };

enum LoaderFlags : uint64_t { kLoaderPins = 1, kLoaderPersistent = 2 };

// Settings are those of the loader that last trained or began; counts are of all loaders of the training thread. A number
// `_plus_1` is 0 where it is not known.
struct RunBody {                           // word index
  uint64_t state;                          //  0  enum RunState, now
  uint64_t state_since_mono_ns;            //  1
  uint64_t process_start_mono_ns;          //  2  0: not known
  uint64_t startup_ns;                     //  3  from there to the end of the first step; 0 before it
  uint64_t first_step_ns;                  //  4  of that, the step
  uint64_t evaluations_total;              //  5  passes over a loader without a backward pass
  uint64_t evaluation_batches_total;       //  6  of TrainBody's batches_total
  uint64_t saves_total;                    //  7  checkpoint saves that succeeded, in any thread
  uint64_t saves_failed_total;             //  8  that raised
  uint64_t background_save_ns_total;       //  9  in other threads than the training's
  uint64_t last_save_real_ns;              // 10  when the last one succeeded; 0: none
  uint64_t last_save_ns;                   // 11  how long it took
  uint64_t flops_per_sample;               // 12  by the user; 0: not given
  uint64_t flops_per_token;                // 13  likewise
  uint64_t restarts_plus_1;                // 14  by the launcher
  uint64_t reserved0;                      // 15
  uint64_t loaders_total;                  // 16  iterations over a loader that began, evaluation included
  uint64_t workers_plus_1;                 // 17
  uint64_t prefetch_factor_plus_1;         // 18
  uint64_t loader_flags_plus_1;            // 19  enum LoaderFlags
  uint64_t sharing_strategy;               // 20  0: not known, 1: file_descriptor, 2: file_system
  uint64_t start_method;                   // 21  0: not known, 1: fork, 2: spawn, 3: forkserver
  uint64_t batch_size;                     // 22  0: not known
  uint64_t first_batches_total;            // 23  first ones of an iteration, evaluation left out
  uint64_t first_batch_ns_total;           // 24  from the start of the iteration (workers start) to that batch
  uint64_t last_first_batch_ns;            // 25
  uint64_t queue_looks_total;              // 26  how often the queue of ready batches was looked at, before a fetch
  uint64_t queue_depth_total;              // 27  sum of its depths
  uint64_t queue_empty_total;              // 28  looks that found it empty
  uint64_t batch_looks_total;              // 29  batches whose tensors were measured
  uint64_t batch_bytes_total;              // 30  sum of theirs
  uint64_t last_batch_bytes;               // 31
  uint64_t wait_histogram[kHistogramBuckets];  // 32  wait for each batch, evaluation left out
  uint64_t wait_ns_total;                  // 64  their sum
  uint64_t reserved[15];                   // 65
};
constexpr uint64_t kRunWords = 80;
static_assert(sizeof(RunBody) == kRunWords * 8, "run body");
static_assert(offsetof(RunBody, wait_histogram) == 32 * 8 && offsetof(RunBody, reserved) == 65 * 8, "run body");

struct RunSection {
  uint64_t seq;
  uint64_t pad[7];
  RunBody body;
};

// --- where everything lies -----------------------------------------------------------------------------------------

constexpr uint64_t kTrainOffset = 256;
constexpr uint64_t kRingOffset = 4096;
static_assert(kTrainOffset + sizeof(TrainSection) <= kRingOffset, "sections end before the ring");
constexpr uint64_t kGpuOffset = kRingOffset + sizeof(RingEntry) * kRingEntries;
constexpr uint64_t kCuptiOffset = kGpuOffset + 4096;
static_assert(sizeof(GpuSection) <= 4096, "gpu section");
constexpr uint64_t kGpuRingOffset = kCuptiOffset + 12288;
static_assert(sizeof(CuptiSection) <= 12288, "cupti section");
constexpr uint64_t kEventsOffset = kGpuRingOffset + sizeof(GpuRingEntry) * kGpuRingEntries;
constexpr uint64_t kRunOffset = kEventsOffset + sizeof(EventsSection);
static_assert(sizeof(RunSection) <= 4096, "run section");
constexpr uint64_t kCollectivesOffset = kRunOffset + 4096;
static_assert(sizeof(CollectivesSection) <= 4096, "collectives section");
constexpr uint64_t kMemoryOffset = kCollectivesOffset + 4096;
static_assert(sizeof(MemorySection) <= 4096, "memory section");
constexpr uint64_t kRecorderOffset = kMemoryOffset + 4096;
static_assert(sizeof(RecorderSection) <= 8192, "recorder section");
constexpr uint64_t kPageBytes = kRecorderOffset + 8192;
static_assert(kPageBytes % 4096 == 0, "whole memory pages");

}  // namespace pymon
