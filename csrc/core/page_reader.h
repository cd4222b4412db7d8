// The daemon's side of the page. The writer is another user's process and may write anything at any time, so the header
// is copied and checked once, and nothing that is read later can lead outside of the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/layout.h"
#include "core/result.h"

namespace pymon {

// Bounds against a hostile writer, twenty times today's page: what one reader may be made to map and to scan.
constexpr uint64_t kMaxPageBytes = 16u << 20;
// A copy takes the writer well under a microsecond, so this many attempts outlast any live one; worst case 0.5 ms.
constexpr int kSeqlockAttempts = 1000;

class PageReader {
 public:
  // Checks seals, size, magic, major number and every offset. Does not keep `fd`.
  static Result<std::unique_ptr<PageReader>> open(int fd);
  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  const Header& header() const noexcept { return header_; }

  // A copy of the training section that was whole at one moment; false where none could be had.
  bool train(TrainBody* out) const noexcept;

  // The GPU layers' sections, likewise; false also where the page, of an older writer, has none.
  bool gpu(GpuBody* out) const noexcept;
  bool cupti(CuptiBody* out) const noexcept;
  bool run(RunBody* out) const noexcept;

  // Appends the GPU times of the steps after `step` that the GPU ring holds, oldest first. A step may be missing: not
  // timed, not yet there, or overwritten.
  void gpu_steps_after(uint64_t step, std::vector<GpuRingEntry>* out) const;

  // All bytes as they stand, for a file: a copy of a page whose writer is gone is whole.
  void copy(std::vector<uint64_t>* out) const;

  // Events that explain a slow step: sums, and the single ones after number `number` that the ring still holds.
  bool events(EventsBody* out) const noexcept;
  void events_after(uint64_t number, std::vector<EventEntry>* out) const;
  bool collectives(CollectivesBody* out) const noexcept;
  bool memory(MemoryBody* out) const noexcept;
  bool recorder(RecorderBody* out) const noexcept;

  // Appends the steps after `step` that the ring still holds, oldest first; returns how many it no longer does.
  uint64_t steps_after(uint64_t step, std::vector<RingEntry>* out) const;

 private:
  PageReader(const unsigned char* page, size_t bytes, const Header& header) noexcept
      : page_(page), bytes_(bytes), header_(header) {}
  const uint64_t* entry(uint64_t step) const noexcept;
  uint64_t newest_step() const noexcept;

  const unsigned char* page_;
  size_t bytes_;
  Header header_;  // as checked; the page's own may have changed since
};

}  // namespace pymon
