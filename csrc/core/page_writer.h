// The trainer's side of the page: makes the sealed memfd and writes it. Each section has one writing thread: the training
// thread the steps (its calls come one at a time, under the GIL), the poller the GPU section, the aggregator CUPTI's.
#pragma once

#include <cstdint>

#include "core/layout.h"
#include "core/result.h"

namespace pymon {

class PageWriter {
 public:
  // A fresh page under a random id. The caller owns the writer; the probe keeps it until the process ends.
  static Result<PageWriter*> create(const uint8_t attach_id[16]);

  // Unmaps and closes; a daemon that holds the memfd keeps the last state.
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  // The writer's own copy: change it freely, then `publish`.
  TrainBody& body() noexcept { return body_; }

  // Copies `body()` into the page, for readers all at once.
  void publish() noexcept;

  // After a step: of `body()` the totals and the histograms' buckets at these words, which is all that a step changes.
  // A whole copy would touch five times as many cache lines.
  void publish_step(const uint16_t* buckets, uint32_t size) noexcept;

  // `doing` alone, at once: a process that is killed shows what it was at.
  void note_doing(uint64_t doing) noexcept;

  // Brings in what the end of the step will write, while the optimizer runs.
  void prefetch_step(uint64_t step) const noexcept;

  // Puts a finished step into the ring, over the one 4,096 steps before. Steps count from 1; 0 is ignored.
  void push_step(const RingEntry& entry) noexcept;

  // The poller's section and ring, by its own copy.
  void publish_gpu(const GpuBody& body) noexcept;
  void push_gpu_step(const GpuRingEntry& entry) noexcept;

  // The aggregator's section: of the head all but the reason, which `with_reason` adds, and of the classes those whose
  // bit is set in `changed`. The rest stands as it was.
  void publish_cupti(const CuptiBody& body, uint32_t changed, bool with_reason) noexcept;

  // Events that explain a slow step; under the GIL, from any thread.
  void publish_events(const EventsBody& body) noexcept;
  void push_event(const EventEntry& entry) noexcept;
  // The training thread's second section, by the caller's own copy.
  void publish_run(const RunBody& body) noexcept;
  // Under the GIL.
  void publish_collectives(const CollectivesBody& body) noexcept;
  void publish_memory(const MemoryBody& body) noexcept;
  void publish_recorder(const RecorderBody& body) noexcept;

  // The memfd, for the daemon; -1 after `disarm_in_child`.
  int fd() const noexcept { return fd_; }

  // In a fork's child: lets go of the page, so that nothing this process does later can reach it. `body()` stays
  // usable, `publish` and `push_step` do nothing.
  void disarm_in_child() noexcept;

 private:
  PageWriter(int fd, unsigned char* page) noexcept : fd_(fd), page_(page) {}
  void write_header(const uint8_t attach_id[16]) noexcept;
  uint64_t* words_at(uint64_t offset) const noexcept { return reinterpret_cast<uint64_t*>(page_ + offset); }

  int fd_;
  unsigned char* page_;  // nullptr: disarmed
  TrainBody body_{};
};

}  // namespace pymon
