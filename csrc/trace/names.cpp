#include "trace/names.h"

#include <cstring>

namespace pymon::trace {
namespace {

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0x9e3779b97f4a7c15ull ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, at, left);
  hash = (hash ^ tail) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ (hash >> 29);
}

}  // namespace

Names::Names(size_t max_bytes) : slots_(1024), max_bytes_(max_bytes) {
  intern("");
  intern("(names over the limit)");
}

uint32_t Names::intern(std::string_view text) {
  const uint64_t hash = hash_of(text);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t number = slots_[slot] - 1;
    if (hashes_[number] == hash && texts_[number] == text) return number;
  }
  if (bytes_ + text.size() > max_bytes_ && texts_.size() > kOverflow) {
    ++refused_total_;
    return kOverflow;
  }
  bytes_ += text.size() + sizeof(std::string) + 16;
  texts_.emplace_back(text);
  hashes_.push_back(hash);
  slots_[slot] = size();
  if (texts_.size() * 2 > slots_.size()) grow();
  return size() - 1;
}

void Names::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (uint32_t number = 0; number < size(); ++number) {
    size_t slot = hashes_[number] & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = number + 1;
  }
}

}  // namespace pymon::trace
