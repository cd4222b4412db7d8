#include "gpu/buffer_pool.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace pymon {
namespace {

uint8_t* allocate() noexcept { return static_cast<uint8_t*>(std::aligned_alloc(4096, BufferPool::kBufferBytes)); }

// The memory's pages too: else whoever writes first pays for them.
uint8_t* allocate_whole() noexcept {
  uint8_t* buffer = allocate();
  if (buffer != nullptr) std::memset(buffer, 0, BufferPool::kBufferBytes);
  return buffer;
}

}  // namespace

BufferPool& BufferPool::instance() noexcept {
  static BufferPool* pool = new BufferPool;  // never destroyed: CUPTI may call after exit() has begun
  return *pool;
}

void BufferPool::begin(bool may_refuse) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  may_refuse_ = may_refuse;
  while (counts_.made < kBuffersAtStart) {
    uint8_t* buffer = add(allocate_whole());
    if (buffer == nullptr) return;
    free_[free_size_++] = buffer;
  }
}

void BufferPool::keep_spare() noexcept {
  const auto wants_one = [this] { return free_size_ == 0 && counts_.made < kMostBuffers && counts_.ever_made < kEverMade; };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!wants_one()) return;
  }
  uint8_t* buffer = allocate_whole();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (buffer == nullptr) return;
    if (wants_one()) {
      free_[free_size_++] = add(buffer);
      return;
    }
  }
  std::free(buffer);  // one came back meanwhile; this one was never lent
}

BufferPool::Buffer* BufferPool::find(const uint8_t* buffer) noexcept {
  for (uint32_t i = 0; i < counts_.ever_made; ++i) {
    if (ever_made_[i].bytes == buffer) return &ever_made_[i];
  }
  return nullptr;
}

uint8_t* BufferPool::add(uint8_t* buffer) noexcept {
  if (buffer == nullptr) return nullptr;
  ++counts_.made;
  ever_made_[counts_.ever_made++] = {buffer, Place::kHome};
  return buffer;
}

void BufferPool::on_requested(uint8_t** buffer, size_t* bytes, size_t* max_records) noexcept {
  BufferPool& pool = instance();
  std::lock_guard<std::mutex> lock(pool.mutex_);
  ++pool.counts_.requests;
  const uint32_t limit = pool.may_refuse_ ? kMostBuffers : kHardLimit;
  uint8_t* lent = nullptr;
  if (pool.free_size_ > 0) {
    lent = pool.free_[--pool.free_size_];
  } else if (pool.counts_.made < limit && pool.counts_.ever_made < kEverMade) {
    lent = pool.add(allocate());
  }
  if (lent == nullptr) {
    ++pool.counts_.refused;
  } else {
    ++pool.counts_.out;
    pool.find(lent)->place = Place::kOut;
  }
  *buffer = lent;
  *bytes = lent == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void BufferPool::on_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) noexcept {
  BufferPool& pool = instance();
  std::lock_guard<std::mutex> lock(pool.mutex_);
  Buffer* found = pool.find(buffer);
  if (found == nullptr || found->place == Place::kHome || pool.done_size_ == kHardLimit) return;
  if (found->place == Place::kOut) --pool.counts_.out;
  if (found->place == Place::kGivenUp) ++pool.counts_.made;  // it came back all the same
  found->place = Place::kHome;
  pool.done_[(pool.done_begin_ + pool.done_size_++) % kHardLimit] = {buffer, valid_bytes};
}

BufferPool::Done BufferPool::take_done() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (done_size_ == 0) return {};
  const Done done = done_[done_begin_];
  done_begin_ = (done_begin_ + 1) % kHardLimit;
  --done_size_;
  return done;
}

void BufferPool::put_back(uint8_t* buffer) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_size_ < kHardLimit) free_[free_size_++] = buffer;
}

BufferPool::Counts BufferPool::counts() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  Counts counts = counts_;
  counts.has_done = done_size_ > 0;
  return counts;
}

void BufferPool::give_up_lent() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < counts_.ever_made; ++i) {
    if (ever_made_[i].place == Place::kOut) ever_made_[i].place = Place::kGivenUp;
  }
  counts_.lost += counts_.out;
  counts_.made -= counts_.out;
  counts_.out = 0;
}

}  // namespace pymon
