#include "gpu/buffer_pool.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace pymon {

BufferPool& BufferPool::instance() noexcept {
  static BufferPool* pool = new BufferPool;  // never destroyed: CUPTI may call after exit() has begun
  return *pool;
}

void BufferPool::begin(bool may_refuse) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  may_refuse_ = may_refuse;
  while (counts_.made < kBuffersAtStart) {
    uint8_t* buffer = make();
    if (buffer == nullptr) return;
    free_[free_size_++] = buffer;
  }
}

bool BufferPool::is_ours(const uint8_t* buffer) const noexcept {
  for (uint32_t i = 0; i < ever_made_size_; ++i) {
    if (ever_made_[i] == buffer) return true;
  }
  return false;
}

uint8_t* BufferPool::make() noexcept {
  if (ever_made_size_ == kEverMade) return nullptr;
  auto* buffer = static_cast<uint8_t*>(std::aligned_alloc(4096, kBufferBytes));
  if (buffer == nullptr) return nullptr;
  std::memset(buffer, 0, kBufferBytes);
  ++counts_.made;
  ever_made_[ever_made_size_++] = buffer;
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
  } else if (pool.counts_.made < limit) {
    lent = pool.make();
  }
  if (lent == nullptr) {
    ++pool.counts_.refused;
  } else {
    ++pool.counts_.out;
  }
  *buffer = lent;
  *bytes = lent == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void BufferPool::on_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) noexcept {
  BufferPool& pool = instance();
  std::lock_guard<std::mutex> lock(pool.mutex_);
  if (!pool.is_ours(buffer) || pool.done_size_ == kHardLimit) return;
  if (pool.counts_.out > 0) --pool.counts_.out;  // 0: given up for lost, and it came back all the same
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
  counts_.lost += counts_.out;
  counts_.made -= counts_.out;  // they are not ours any more, and do not count against the bound
  counts_.out = 0;
}

}  // namespace pymon
