#include "gpu/name_cache.h"

#include <cstring>
#include <new>

#include "gpu/kernel_class.h"

namespace pymon {

bool NameCache::allocate() noexcept {
  entries_.reset(new (std::nothrow) Entry[kSlots]);
  text_.reset(new (std::nothrow) char[kTextBytes]);
  return entries_ != nullptr && text_ != nullptr;
}

WorkClass NameCache::find_slowly(const char* name) noexcept {
  if (name == nullptr) return kOtherKernel;
  uint32_t slot = slot_of(name);
  for (uint32_t probe = 0; probe < kMaxProbes; ++probe, slot = (slot + 1) % kSlots) {
    Entry& entry = entries_[slot];
    if (entry.address == name) {
      entry.buffer = buffer_;
      if (std::strcmp(entry.text, name) == 0) return entry.work;
      const char* text = keep(name);
      if (text == nullptr) {
        entry.buffer = 0;  // its class is another name's
        break;
      }
      entry.text = text;
      entry.work = kernel_class(name);
      ++changed_total_;
      return entry.work;
    }
    if (entry.address == nullptr) {
      const char* text = names_ < kMaxNames ? keep(name) : nullptr;
      if (text == nullptr) break;
      entry = {name, text, kernel_class(name), buffer_};
      ++names_;
      return entry.work;
    }
  }
  ++uncached_total_;
  return kernel_class(name);
}

const char* NameCache::keep(const char* name) noexcept {
  const size_t bytes = std::strlen(name) + 1;
  if (bytes > kTextBytes - text_used_) return nullptr;
  char* copy = text_.get() + text_used_;
  std::memcpy(copy, name, bytes);
  text_used_ += bytes;
  return copy;
}

}  // namespace pymon
