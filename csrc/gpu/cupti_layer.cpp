#include "gpu/cupti_layer.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/clock.h"
#include "core/thread.h"

namespace pymon {
namespace {

constexpr cupti::Kind kKinds[] = {cupti::kConcurrentKernel, cupti::kMemcpy, cupti::kMemset, cupti::kMemcpyPeer};

// Records of one device come back within a flush or two; older ones wait behind a kernel that still runs.
constexpr uint64_t kSettleBehindNs = 1'000'000'000;
constexpr uint64_t kQuietSteps = 20;  // without any record: more than an evaluation on the host's side
// So many in so short a time is no capture but a tool that stays.
constexpr uint64_t kThefts = 3;
constexpr uint64_t kTheftsWithinNs = 600'000'000'000;
constexpr int kFailedFlushes = 20;  // in a row, ten seconds: records would come home from full buffers only
constexpr uint64_t kReturnWaitNs = 200'000'000;  // for lent buffers, after CUPTI was told to hand all out

constexpr uint32_t kExitMs = 500;  // the end of a process waits no longer than this

std::atomic<CuptiLayer*> g_layer{nullptr};  // the one that the end of the process stops

void stop_at_exit() {
  if (CuptiLayer* layer = g_layer.load()) layer->stop("the process ends", kExitMs);
}

void sleep_ns(uint64_t ns) noexcept {
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

}  // namespace

CuptiLayer* CuptiLayer::start(PageWriter* page, const cuda::Api* cuda, const CuptiOptions& options) {
  auto* layer = new (std::nothrow) CuptiLayer(page, cuda, options);
  if (layer == nullptr) return nullptr;
  pthread_t thread;
  if (!start_thread(&thread, "pymon-cupti", &CuptiLayer::run, layer)) {
    layer->enter(kLayerAbsent, "no thread could be started");
    layer->publish();
    layer->end();
    return layer;
  }
  pthread_detach(thread);
  return layer;
}

bool CuptiLayer::yield(uint32_t timeout_ms, const char* reason) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  if (yields_++ == 0) yield_reason_ = reason;
  changed_.notify_all();
  // `kLayerRunning` is entered before CUPTI is touched, so in any other state the thread is not in its calls.
  const auto is_free = [this] { return state() != kLayerRunning; };
  if (changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_free)) return true;
  late_.store(true, std::memory_order_release);
  return false;
}

void CuptiLayer::resume() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (yields_ > 0 && --yields_ == 0) changed_.notify_all();
}

void CuptiLayer::stop(const char* reason, uint32_t timeout_ms) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stop_reason_ == nullptr) stop_reason_ = reason;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return ended_; });
}

void CuptiLayer::leave(const char* reason) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  late_.store(true, std::memory_order_release);
  if (stop_reason_ == nullptr) stop_reason_ = reason;
  changed_.notify_all();
}

std::string CuptiLayer::reason() {
  std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

void CuptiLayer::forget_in_child() noexcept { g_layer.store(nullptr); }

void* CuptiLayer::run(void* self) noexcept {
  auto* layer = static_cast<CuptiLayer*>(self);
  try {
    if (layer->open()) layer->loop();
  } catch (...) {  // the words for a failure are the only thing that is allocated
    layer->enter(kLayerAbsent, "no memory");
  }
  layer->publish();
  layer->end();
  return nullptr;
}

bool CuptiLayer::open() {
  Result<Cupti> found = load_cupti(options_.loading);
  if (!found.ok()) {
    enter(kLayerAbsent, found.error().text.c_str());
    return false;
  }
  cupti_ = found.value();
  // Now that libcupti is loaded: what is registered later runs earlier, and its destructors must find our thread gone.
  g_layer.store(this);
  std::atexit(&stop_at_exit);
  sums_.body().head.cupti_version = cupti_.version;
  if (!sums_.allocate()) {
    enter(kLayerAbsent, "no memory for its tables");
    return false;
  }
  pool_.begin(cupti_.may_refuse_buffers);
  if (cuda_ != nullptr) {
    // A query of ours must not break the user's capture of a CUDA graph, in any thread of the process.
    int mode = cuda::kCaptureModeRelaxed;
    cuda_->cuThreadExchangeStreamCaptureMode(&mode);
  }
  return true;
}

void CuptiLayer::loop() {
  for (;;) {
    const Wish wish = wait_for_wish(next_flush_ns_);
    obey(wish);
    const uint64_t now_ns = mono_ns();
    if (now_ns >= next_flush_ns_) {
      next_flush_ns_ = now_ns + options_.flush_ns;
      if (armed_) flush();
    }
    drain();
    pool_.keep_spare();
    if (armed_) sums_.settle(real_ns() - kSettleBehindNs);
    if (armed_) look_for_silence(now_ns);
    if (armed_) guard(now_ns);
    publish();
    if (state() == kLayerDisarmed || state() == kLayerAbsent) return;
  }
}

// Decides under the lock, and says `running` before the first CUPTI call: whoever yields meanwhile waits for the end.
CuptiLayer::Wish CuptiLayer::wait_for_wish(uint64_t until_mono_ns) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto wants_change = [this] {
    if (stop_reason_ != nullptr || (armed_ && !is_ours())) return true;
    return yields_ > 0 ? state() == kLayerRunning : renews_ || (!armed_ && stolen_until_ns_ <= mono_ns());
  };
  const uint64_t now_ns = mono_ns();
  if (until_mono_ns > now_ns) {
    changed_.wait_for(lock, std::chrono::nanoseconds(until_mono_ns - now_ns), wants_change);
  }
  if (stop_reason_ != nullptr) return Wish::kStop;
  lent_ = yield_reason_;
  if (!armed_) late_.store(false, std::memory_order_relaxed);  // nothing is left that could come too late
  if (yields_ > 0 || !is_ours()) return Wish::kYield;
  if (stolen_until_ns_ > mono_ns()) return Wish::kYield;
  state_.store(kLayerRunning, std::memory_order_release);
  return Wish::kRun;
}

void CuptiLayer::obey(Wish wish) {
  const bool was_armed = armed_;
  if (wish == Wish::kRun) {
    if (armed_ && !renews_) return;
    renews_ = false;
    if (!arm()) return;  // the reason is set
    if (yielded_since_ns_ != 0) {
      sums_.body().head.yielded_ns_total += mono_ns() - yielded_since_ns_;
      ++sums_.body().head.handovers_total;
      yielded_since_ns_ = 0;
    }
    begin_guard();
    enter(kLayerRunning, "running");
    return;
  }
  if (armed_) disarm();
  if (wish == Wish::kStop) {
    drain();
    sums_.interrupt();
    enter(kLayerDisarmed, stop_reason_);
  } else if (was_armed || state() == kLayerRunning) {
    yielded_since_ns_ = mono_ns();
    enter(kLayerYielded, lent_ != nullptr ? lent_ : "lent to another profiler");
  } else if (state() == kLayerOff) {
    enter(kLayerYielded, "waits for another profiler");
    yielded_since_ns_ = mono_ns();
  }
}

bool CuptiLayer::arm() {
  const cupti::Api& api = cupti_.api;
  // CUPTI zeroes its buffers itself (23 us for one of ours, in the launching thread). Promising to do it for it would save
  // that, and bind every client after us, Kineto's unannounced captures among them, whose buffers hold old bytes.
  std::string failed;
  cupti::Result result = api.cuptiActivityRegisterCallbacks(&BufferPool::on_requested, &BufferPool::on_completed);
  if (result != cupti::kSuccess) failed = "cuptiActivityRegisterCallbacks: ";
  for (const cupti::Kind kind : kKinds) {
    if (!failed.empty() || !is_ours()) break;
    result = api.cuptiActivityEnable(kind);
    if (result != cupti::kSuccess) failed = "cuptiActivityEnable(" + std::to_string(kind) + "): ";
  }
  if (failed.empty() && options_.synchronisations && is_ours()) {
    // Without it each event query makes a record, NCCL's watchdog's and our own among them; where it cannot be had
    // (before CUDA 12.8), waits stay unseen.
    if (api.cuptiActivityEnableAllSyncRecords != nullptr &&
        api.cuptiActivityEnableAllSyncRecords(0) == cupti::kSuccess) {
      result = api.cuptiActivityEnable(cupti::kSynchronization);
      if (result != cupti::kSuccess) failed = "cuptiActivityEnable(38): ";
    }
  }
  if (!failed.empty()) {
    for (const cupti::Kind kind : kKinds) {
      if (is_ours()) api.cuptiActivityDisable(kind);
    }
    armed_ = false;
    sums_.body().head.last_error = static_cast<uint64_t>(result);
    enter(kLayerAbsent, (failed + result_text(api, result)).c_str());
    return false;
  }
  armed_ = true;
  look_at_clock(true);
  activity_ns_ = mono_ns();
  steps_at_activity_ = steps_.load(std::memory_order_relaxed);
  return true;
}

// Leaves nothing of ours with CUPTI: a buffer that were still lent would come back through the next client's callback,
// with records that neither of us could use. But that client waits only so long, and each of these calls may hang.
void CuptiLayer::disarm() noexcept {
  const cupti::Api& api = cupti_.api;
  for (const cupti::Kind kind : kKinds) {
    if (is_ours()) api.cuptiActivityDisable(kind);
  }
  if (options_.synchronisations && is_ours()) api.cuptiActivityDisable(cupti::kSynchronization);
  if (is_ours()) api.cuptiActivityFlushAll(0);
  if (is_ours() && pool_.counts().out > 0) api.cuptiActivityFlushAll(cupti::kFlushForced);
  const uint64_t until_ns = mono_ns() + kReturnWaitNs;
  while (is_ours() && pool_.counts().out > 0 && mono_ns() < until_ns) sleep_ns(200'000);
  if (is_ours()) look_at_clock(false);
  armed_ = silent_ = renews_ = false;
  drain();
  pool_.give_up_lent();
  sums_.interrupt();
  if (is_ours() && options_.synchronisations && api.cuptiActivityEnableAllSyncRecords != nullptr) {
    api.cuptiActivityEnableAllSyncRecords(1);
  }
}

// Never forced here: that would hand out kernels that still run, and they never come back.
void CuptiLayer::flush() {
  if (!is_ours()) return;
  const cupti::Result result = cupti_.api.cuptiActivityFlushAll(0);
  ++sums_.body().head.flushes_total;
  if (!is_ours()) return;
  size_t dropped = 0;
  if (cupti_.api.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == cupti::kSuccess) {
    sums_.body().head.dropped_total += dropped;
  }
  if (!look_at_clock(false)) return give_way("another CUPTI client took over (a Kineto on-demand capture?)");
  failed_flushes_ = result == cupti::kSuccess ? 0 : failed_flushes_ + 1;
  if (result != cupti::kSuccess) sums_.body().head.last_error = static_cast<uint64_t>(result);
  if (failed_flushes_ < kFailedFlushes) return;
  disarm();
  enter(kLayerDisarmed, ("cuptiActivityFlushAll: " + result_text(cupti_.api, result)).c_str());
}

void CuptiLayer::drain() noexcept {
  for (BufferPool::Done done = pool_.take_done(); done.buffer != nullptr; done = pool_.take_done()) {
    sums_.add_buffer(cupti_.api, done.buffer, done.valid_bytes);
    pool_.put_back(done.buffer);
  }
}

bool CuptiLayer::look_at_clock(bool begin) noexcept {
  RecordClock::Look look{real_ns(), 0, 0};
  if (cupti_.api.cuptiGetTimestamp(&look.cupti) != cupti::kSuccess) return true;
  look.after_ns = real_ns();
  if (begin) {
    sums_.clock().begin(look);
    return true;
  }
  return sums_.clock().renew(look);
}

void CuptiLayer::look_for_silence(uint64_t now_ns) noexcept {
  const uint64_t requests = pool_.counts().requests, records = sums_.body().head.records_total;
  const uint64_t steps = steps_.load(std::memory_order_relaxed);
  if (requests != last_requests_ || records != last_records_) {
    last_requests_ = requests;
    last_records_ = records;
    steps_at_activity_ = steps;
    activity_ns_ = now_ns;
    if (silent_) enter(kLayerRunning, "running");
    silent_ = false;
    return;
  }
  if (now_ns - activity_ns_ < options_.silence_ns) return;
  if (options_.knows_steps ? steps - steps_at_activity_ < kQuietSteps : !sums_.clock().ticks()) return;
  if (!silent_) enter(kLayerRunning, "running, but records stay away while steps go by: has another client taken CUPTI?");
  silent_ = true;
  if (!options_.expects_kineto || records == 0 || now_ns - activity_ns_ < options_.kineto_silence_ns) return;
  ++sums_.body().head.stolen_total;
  if (is_theft_too_many(now_ns)) return;
  activity_ns_ = now_ns;
  renews_ = true;  // what is lent stays lent
}

bool CuptiLayer::is_theft_too_many(uint64_t now_ns) noexcept {
  thefts_in_a_row_ = now_ns - last_theft_ns_ < kTheftsWithinNs && last_theft_ns_ != 0 ? thefts_in_a_row_ + 1 : 1;
  last_theft_ns_ = now_ns;
  if (thefts_in_a_row_ < kThefts) return false;
  armed_ = false;
  pool_.give_up_lent();
  sums_.interrupt();
  enter(kLayerDisarmed, "another CUPTI client keeps taking over");
  return true;
}

// CUPTI is the other's now: it is not touched until that one should be done.
void CuptiLayer::give_way(const char* reason) noexcept {
  const uint64_t now_ns = mono_ns();
  armed_ = silent_ = false;
  pool_.give_up_lent();
  sums_.interrupt();
  ++sums_.body().head.stolen_total;
  if (is_theft_too_many(now_ns)) return;
  stolen_until_ns_ = now_ns + options_.stolen_hold_ns;
  yielded_since_ns_ = now_ns;
  enter(kLayerYielded, reason);
}

// Each lease goes on with the windows of the one before: many short ones must not escape the budget.
void CuptiLayer::begin_guard() noexcept {
  memory_begun_ = false;  // what others took meanwhile is not ours
  if (guarded_) return;
  guarded_ = true;
  const CuptiHead& head = sums_.body().head;
  self_guard_.begin({armed_ns(mono_ns()), thread_cpu_ns(), head.records_total, head.zero_times_total,
                     head.bad_times_total, pool_.counts().refused, 0, 0});
}

void CuptiLayer::guard(uint64_t now_ns) noexcept {
  CuptiHead& head = sums_.body().head;
  const BufferPool::Counts counts = pool_.counts();
  head.host_bytes = sums_.bytes() + counts.ever_made * BufferPool::kBufferBytes;
  uint64_t free_bytes, reserved_bytes;
  if (read_device_memory(&free_bytes, &reserved_bytes)) {
    if (!memory_begun_) {
      device_memory_.begin_lease(free_bytes, reserved_bytes, head.records_total);
      memory_begun_ = true;
    } else {
      head.device_bytes = device_memory_.add_window(free_bytes, reserved_bytes, head.records_total);
    }
  }
  const char* over = self_guard_.check({armed_ns(now_ns), thread_cpu_ns(), head.records_total, head.zero_times_total,
                                        head.bad_times_total, counts.refused, head.host_bytes, head.device_bytes});
  if (over == nullptr) return;
  disarm();
  enter(kLayerDisarmed, over);
}

// Right after torch's figure was told, every ten seconds: figures of two moments would not belong together.
bool CuptiLayer::read_device_memory(uint64_t* free_bytes, uint64_t* reserved_bytes) noexcept {
  const uint64_t notes = reserved_notes_.load(std::memory_order_acquire);
  if (notes == seen_notes_) return false;
  const cuda::Context context = context_.load(std::memory_order_acquire);
  if (cuda_ == nullptr || context == nullptr) return false;
  if (!in_context_ && cuda_->cuCtxSetCurrent(context) != cuda::kSuccess) return false;
  in_context_ = true;
  size_t free = 0, total = 0;
  if (cuda_->cuMemGetInfo_v2(&free, &total) != cuda::kSuccess) return false;
  seen_notes_ = notes;
  *free_bytes = free;
  *reserved_bytes = reserved_bytes_.load(std::memory_order_relaxed);
  return true;
}

void CuptiLayer::enter(LayerState state, const char* reason) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  std::memset(reason_, 0, sizeof reason_);
  std::memcpy(reason_, reason, std::min(std::strlen(reason), sizeof reason_ - 1));
  std::memcpy(sums_.body().head.reason, reason_, sizeof reason_);
  reason_changed_ = true;
  state_.store(state, std::memory_order_release);
  changed_.notify_all();
}

void CuptiLayer::end() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void CuptiLayer::publish() noexcept {
  CuptiHead& head = sums_.body().head;
  const BufferPool::Counts counts = pool_.counts();
  head.state = state_.load(std::memory_order_relaxed);
  head.publish_mono_ns = mono_ns();
  head.buffers_out = counts.out;
  head.buffers_refused_total = counts.refused;
  head.buffers_lost_total = counts.lost;
  head.own_cpu_ns_total = thread_cpu_ns();
  head.names = sums_.names().names();
  head.names_changed_total = sums_.names().changed_total();
  head.names_uncached_total = sums_.names().uncached_total();
  head.ticks = sums_.clock().ticks();
  if (page_ != nullptr) page_->publish_cupti(sums_.body(), sums_.take_changed(), reason_changed_);
  reason_changed_ = false;
}

}  // namespace pymon
