// The name of a process group as the page holds it. PyTorch names some by a hash of 40 digits, others by all their ranks.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/layout_collectives.h"

namespace pymon {

// A name that is too long ends in a hash of the whole (FNV-1a, 32 bits), the same on every rank.
inline void put_group_name(std::string_view name, char (&out)[kGroupNameBytes]) {
  constexpr size_t kMost = kGroupNameBytes - 1, kHashed = 9;  // "~" and eight digits
  std::memset(out, 0, sizeof out);
  if (name.size() <= kMost) {
    std::memcpy(out, name.data(), name.size());
    return;
  }
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  size_t kept = kMost - kHashed;
  while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xc0) == 0x80) --kept;  // no half of a character
  std::memcpy(out, name.data(), kept);
  std::snprintf(out + kept, kHashed + 1, "~%08x", hash);
}

}  // namespace pymon
