// The buffers that are lent to CUPTI, and the two callbacks in which CUPTI takes and returns them.
//
// The callbacks run in any thread, under CUPTI's own locks: they move a pointer under a short mutex and do nothing else,
// no CUPTI call, no log, no exception. A buffer is never freed, since CUPTI may write into one late. There is one pool in
// a process, because the callbacks carry no pointer of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gpu/cupti_abi.h"

namespace pymon {

class BufferPool {
 public:
  static constexpr size_t kBufferBytes = size_t{1} << 20;  // 4,854 kernel records of CUPTI 13.0
  // Together with the tables of ActivitySums at most 32 MiB of host memory.
  static constexpr uint32_t kMostBuffers = 20;
  static constexpr uint32_t kBuffersAtStart = 2;

  // `may_refuse` false: this CUPTI may crash where it gets no buffer (before API 27), so one more is made beyond the
  // bound, and the self-guard switches the layer off. Made once, lives as long as the process.
  static BufferPool& instance() noexcept;
  void begin(bool may_refuse) noexcept;

  static void on_requested(uint8_t** buffer, size_t* bytes, size_t* max_records) noexcept;
  static void on_completed(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid_bytes) noexcept;

  struct Done {
    uint8_t* buffer = nullptr;  // nullptr: none left
    size_t valid_bytes = 0;
  };
  // The oldest buffer that came back; `put_back` it when its records are read.
  Done take_done() noexcept;
  void put_back(uint8_t* buffer) noexcept;
  // For our thread, now and then: with none free, one is made ahead, so that a launching thread seldom pays for it.
  void keep_spare() noexcept;

  struct Counts {
    uint32_t out = 0;        // lent now
    uint32_t made = 0;       // ours to use: all but those given up
    uint32_t ever_made = 0;  // memory held
    uint64_t requests = 0, refused = 0, lost = 0;
    bool has_done = false;
  };
  Counts counts() noexcept;

  // Another client registered its callbacks: what is out comes back to that one, or never.
  void give_up_lent() noexcept;

 private:
  static constexpr uint32_t kHardLimit = 64;  // room in the tables, for a CUPTI that must not be refused

  enum class Place : uint8_t { kHome, kOut, kGivenUp };
  struct Buffer {
    uint8_t* bytes;
    Place place;
  };
  uint8_t* add(uint8_t* buffer) noexcept;
  Buffer* find(const uint8_t* buffer) noexcept;  // nullptr: not ours

  std::mutex mutex_;
  bool may_refuse_ = true;
  // Every buffer ever made, those given up included: another client's may come through our callback, and to take one of
  // those for ours would write beyond its end.
  static constexpr uint32_t kEverMade = 256;
  Buffer ever_made_[kEverMade] = {};
  uint8_t* free_[kHardLimit] = {};
  Done done_[kHardLimit] = {};
  uint32_t free_size_ = 0, done_begin_ = 0, done_size_ = 0;
  Counts counts_;
};

}  // namespace pymon
