// The CUPTI layer: one thread that holds the lease on CUPTI's Activity API, sums the records and publishes them.
//
// It makes every CUPTI call itself and holds no lock while it does; others only say what they want and may wait for it a
// moment. No cuptiSubscribe (torch tries once, and if refused has no GPU events for the rest of the process), no
// cuptiFinalize (it poisons CUPTI for good), no timestamp callback (record_clock.h).
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/layout.h"
#include "core/page_writer.h"
#include "gpu/activity_sums.h"
#include "gpu/buffer_pool.h"
#include "gpu/device_memory.h"
#include "gpu/library.h"
#include "gpu/self_guard.h"

namespace pymon {

struct CuptiOptions {
  bool synchronisations = false;  // records of the host's waits too
  uint64_t flush_ns = 500'000'000;
  // How long CUPTI is left alone after another client was noticed in it. Kineto's on-demand captures last a second or
  // two, minutes at most; there is no way to ask whether one still runs.
  uint64_t stolen_hold_ns = 30'000'000'000;
  // Without a record for so long while steps go by, somebody took CUPTI unseen. CUPTI does not tell who has it: where
  // Kineto's daemon mode is on, that was a capture of its, which is over by now and has switched our kinds off. Else it
  // may be a client that stays, which must not be robbed: the layer says so, and waits for records to come back.
  uint64_t silence_ns = 30'000'000'000, kineto_silence_ns = 120'000'000'000;
  bool expects_kineto = false;
  bool knows_steps = true;  // whether `note_step` tells of work
  GuardBudget budget;
  Loading loading = Loading::kOnlyLoaded;
};

class CuptiLayer {
 public:
  // Starts the thread; the layer's state and reason are in the page from then on. `cuda` may be null: GPU memory is not
  // watched then. Lives as long as the process, since CUPTI may call late.
  static CuptiLayer* start(PageWriter* page, const cuda::Api* cuda, const CuptiOptions& options);

  // Gives CUPTI up for another client's sake, all records of ours delivered. False: it took longer than `timeout_ms`,
  // and the caller goes on all the same; what was still to be done with CUPTI is then left undone, since it would be done
  // to the other client. Nests: as many `resume` take it back. The first one's `reason`, which must live as long as the
  // program, stands in the page.
  bool yield(uint32_t timeout_ms, const char* reason = nullptr) noexcept;
  void resume() noexcept;

  // Off for good; `reason` must live as long as the program.
  void stop(const char* reason, uint32_t timeout_ms) noexcept;

  // Likewise, for a client that has taken CUPTI already: it is not touched any more.
  void leave(const char* reason) noexcept;

  // A training step went by: without any record since, somebody else has CUPTI.
  void note_step() noexcept { steps_.fetch_add(1, std::memory_order_relaxed); }
  // The trainer's CUDA context, in which GPU memory is asked about.
  void note_context(cuda::Context context) noexcept { context_.store(context, std::memory_order_release); }
  // What torch's allocator has reserved: its growth explains GPU memory that is not CUPTI's. Until it is told, GPU
  // memory is not judged.
  void note_reserved(uint64_t bytes) noexcept { 
    reserved_bytes_.store(bytes, std::memory_order_relaxed);
    reserved_notes_.fetch_add(1, std::memory_order_release);
  }

  LayerState state() const noexcept { return static_cast<LayerState>(state_.load(std::memory_order_acquire)); }
  std::string reason();

  // In a fork's child the thread is gone: the end of that process must not wait for it.
  static void forget_in_child() noexcept;

 private:
  enum class Wish { kRun, kYield, kStop };

  CuptiLayer(PageWriter* page, const cuda::Api* cuda, const CuptiOptions& options) noexcept
      : page_(page), cuda_(cuda), options_(options), self_guard_(options.budget) {}

  static void* run(void* self) noexcept;
  bool open();
  void loop();
  Wish wait_for_wish(uint64_t until_mono_ns) noexcept;
  void obey(Wish wish);
  bool arm();
  void begin_guard() noexcept;
  bool is_ours() const noexcept { return !late_.load(std::memory_order_acquire); }
  void disarm() noexcept;
  void flush();
  void drain() noexcept;
  bool look_at_clock(bool begin) noexcept;
  void look_for_silence(uint64_t now_ns) noexcept;
  bool is_theft_too_many(uint64_t now_ns) noexcept;
  void give_way(const char* reason) noexcept;
  void guard(uint64_t now_ns) noexcept;
  uint64_t armed_ns(uint64_t now_ns) noexcept { return now_ns - sums_.body().head.yielded_ns_total; }
  bool read_device_memory(uint64_t* free_bytes, uint64_t* reserved_bytes) noexcept;
  void enter(LayerState state, const char* reason) noexcept;
  void publish() noexcept;
  void end() noexcept;

  PageWriter* page_;
  const cuda::Api* cuda_;
  CuptiOptions options_;
  Cupti cupti_;
  BufferPool& pool_ = BufferPool::instance();
  ActivitySums sums_;
  SelfGuard self_guard_;

  // Shared with the callers.
  std::mutex mutex_;
  std::condition_variable changed_;
  int yields_ = 0;                    // who wants CUPTI now
  const char* yield_reason_ = nullptr;  // of the first of them
  std::atomic<bool> late_{false};     // somebody waited in vain: CUPTI is not ours any more, whatever the thread is at
  const char* stop_reason_ = nullptr;
  bool ended_ = false;  // the thread will not touch the page again
  char reason_[kReasonBytes] = "is being started";
  std::atomic<uint64_t> state_{kLayerOff};
  std::atomic<uint64_t> steps_{0}, reserved_bytes_{0}, reserved_notes_{0};
  std::atomic<cuda::Context> context_{nullptr};

  // The thread's own.
  const char* lent_ = nullptr;  // `yield_reason_` as the wish was heard
  bool armed_ = false, guarded_ = false;
  bool silent_ = false;   // records stay away, and the reason says so
  bool renews_ = false;   // CUPTI is to be taken anew, armed or not
  int failed_flushes_ = 0;
  bool reason_changed_ = false;  // since it was published
  uint64_t next_flush_ns_ = 0, yielded_since_ns_ = 0;
  uint64_t stolen_until_ns_ = 0, thefts_in_a_row_ = 0, last_theft_ns_ = 0;
  uint64_t last_requests_ = 0, last_records_ = 0, steps_at_activity_ = 0, activity_ns_ = 0;
  DeviceMemory device_memory_;
  bool in_context_ = false;
  bool memory_begun_ = false;  // in this lease
  uint64_t seen_notes_ = 0;
};

}  // namespace pymon
