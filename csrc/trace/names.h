// Strings kept once, known by number.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pymon::trace {

// Interns names up to a number of bytes in all; what comes after that shares one number, `kOverflow`, so that a trace of
// endless names costs bounded memory. Number 0 is the empty name.
class Names {
 public:
  static constexpr uint32_t kEmpty = 0;
  static constexpr uint32_t kOverflow = 1;

  explicit Names(size_t max_bytes);

  uint32_t intern(std::string_view text);
  std::string_view at(uint32_t number) const { return texts_[number]; }
  uint32_t size() const { return static_cast<uint32_t>(texts_.size()); }
  uint64_t refused_total() const { return refused_total_; }

 private:
  void grow();

  std::deque<std::string> texts_;
  std::vector<uint64_t> hashes_;  // one per text
  std::vector<uint32_t> slots_;   // open addressing, number + 1, 0 is free; a power of two
  size_t bytes_ = 0;
  size_t max_bytes_;
  uint64_t refused_total_ = 0;
};

}  // namespace pymon::trace
