// Kernel name -> class, at a few nanoseconds a record.
//
// CUPTI interns names, so their address is the key. But an address may come to hold another name after a module was
// unloaded (fixed in CUPTI 13.4 Update 1 only), so the text is compared too: once for each name and buffer, since a
// second look at the same memory within one buffer would see the same. All memory is taken once, at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/layout.h"

namespace pymon {

class NameCache {
 public:
  // False: no memory.
  bool allocate() noexcept;

  // Another buffer's records follow.
  void begin_buffer() noexcept { ++buffer_; }

  // `name` as CUPTI gave it, null included.
  WorkClass find(const char* name) noexcept {
    const Entry& entry = entries_[slot_of(name)];
    return __builtin_expect(entry.address == name && entry.buffer == buffer_, 1) ? entry.work : find_slowly(name);
  }

  uint64_t names() const noexcept { return names_; }
  uint64_t changed_total() const noexcept { return changed_total_; }
  uint64_t uncached_total() const noexcept { return uncached_total_; }
  static constexpr size_t bytes() noexcept { return kSlots * sizeof(Entry) + kTextBytes; }

 private:
  struct Entry {
    const char* address = nullptr;
    const char* text = nullptr;  // our copy of what the address held
    WorkClass work = kOtherKernel;
    uint32_t buffer = 0;         // in which it was last compared
  };
  // A training step launches some hundred distinct kernels; torch.compile with many shapes, some thousand.
  static constexpr uint32_t kSlotBits = 13;
  static constexpr uint32_t kSlots = 1u << kSlotBits;
  static constexpr uint32_t kMaxNames = kSlots / 2;  // beyond it probing gets long
  static constexpr uint32_t kMaxProbes = 64;
  static constexpr size_t kTextBytes = size_t{1} << 20;

  static uint32_t slot_of(const char* name) noexcept {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(name) * 0x9E3779B97F4A7C15ull) >> (64 - kSlotBits));
  }
  WorkClass find_slowly(const char* name) noexcept;
  const char* keep(const char* name) noexcept;

  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<char[]> text_;
  size_t text_used_ = 0;
  uint32_t buffer_ = 1;  // an empty entry, with its null address, is of none
  uint64_t names_ = 0, changed_total_ = 0, uncached_total_ = 0;
};

}  // namespace pymon
