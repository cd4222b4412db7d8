// The daemon's side of the page: maps a memfd that a trainer handed over, and copies whole states out of it.
//
// The trainer is not trusted. Seals make sure that the mapping cannot shrink under us (that would be SIGBUS); offsets and
// sizes of the header are checked once against the mapped size and kept; no number of the page is a bound afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout.h"
#include "core/result.h"

namespace pymon {

class PageReader {
 public:
  // Borrows `fd` for the call; the mapping outlives it.
  static Result<PageReader*> open(int fd);

  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  // A copy made at `open`: the identity cannot change later.
  const Header& header() const noexcept { return header_; }

  // False where no attempt met a quiet moment, as when the writer died in mid-copy.
  bool train(TrainBody* out) const noexcept;

  // Appends the steps newer than `step` that the ring still holds, oldest first, up to `newest`, and gives how many of
  // those in between are gone.
  uint64_t steps_after(uint64_t step, uint64_t newest, std::vector<RingEntry>* out) const;

 private:
  PageReader(const unsigned char* page, const Header& header) noexcept : page_(page), header_(header) {}

  const unsigned char* page_;
  Header header_;
};

}  // namespace pymon
