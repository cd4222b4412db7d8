#include "core/page_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "core/seqlock.h"

namespace pymon {
namespace {

constexpr int kAttempts = 64;  // a copy takes well under a microsecond; this many torn ones in a row is no accident
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

const uint64_t* words_at(const unsigned char* page, uint64_t offset) noexcept {
  return reinterpret_cast<const uint64_t*>(page + offset);
}

// Empty where the header is one we can read; else what is wrong with it.
std::string defect(const Header& header, uint64_t mapped_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "no magic: not a page, or not ready";
  if (header.major != kMajor) {
    return "layout " + std::to_string(header.major) + "." + std::to_string(header.minor) + ", this daemon reads " +
           std::to_string(kMajor) + ".x";
  }
  if (header.page_bytes != mapped_bytes) return "the header tells another size than the memfd has";
  // Major 1 fixes what it has; only sections added later may lie elsewhere.
  if (header.train_offset != kTrainOffset || header.train_bytes < sizeof(TrainSection) ||
      header.ring_offset != kRingOffset || header.ring_entry_bytes != sizeof(RingEntry) ||
      header.ring_entries != kRingEntries) {
    return "offsets that do not belong to this layout";
  }
  return {};
}

}  // namespace

Result<PageReader*> PageReader::open(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Error::because("not a memfd that can be sealed");
  if ((seals & kSeals) != kSeals) return Error::because("the memfd is not sealed against a change of its size");
  struct stat info {};
  if (fstat(fd, &info) != 0) return Error::system("fstat", errno);
  if (info.st_size != static_cast<off_t>(kPageBytes)) {
    return Error::because("the memfd has " + std::to_string(info.st_size) + " bytes, a page has " +
                          std::to_string(kPageBytes));
  }
  void* mapped = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return Error::system("mmap", errno);
  const auto* page = static_cast<const unsigned char*>(mapped);
  Header header;
  load_words(&header, words_at(page, 0), sizeof header / 8);
  std::string wrong = defect(header, kPageBytes);
  PageReader* reader = wrong.empty() ? new (std::nothrow) PageReader(page, header) : nullptr;
  if (reader == nullptr) {
    munmap(mapped, kPageBytes);
    return wrong.empty() ? Error::system("page reader", ENOMEM) : Error::because(std::move(wrong));
  }
  return reader;
}

PageReader::~PageReader() { munmap(const_cast<unsigned char*>(page_), kPageBytes); }

bool PageReader::train(TrainBody* out) const noexcept {
  const uint64_t* section = words_at(page_, kTrainOffset);
  return seqlock_copy(section, section + offsetof(TrainSection, body) / 8, out, kTrainWords, kAttempts);
}

uint64_t PageReader::steps_after(uint64_t step, uint64_t newest, std::vector<RingEntry>* out) const {
  if (newest <= step) return 0;
  const uint64_t first = std::max(step + 1, newest > kRingEntries ? newest - kRingEntries + 1 : 1);
  uint64_t lost = first - step - 1;
  const uint64_t held = newest - first + 1;  // at most the ring; counted down, since `newest` may be any number
  for (uint64_t i = 0; i < held; ++i) {
    const uint64_t number = first + i;
    const uint64_t* words = words_at(page_, kRingOffset + (number % kRingEntries) * sizeof(RingEntry));
    RingEntry entry;
    if (load_acquire(words) != number) {
      ++lost;  // overwritten since, or being overwritten
      continue;
    }
    load_words(&entry, words, sizeof entry / 8);
    if (load_relaxed(words) != number || entry.step != number) {
      ++lost;
      continue;
    }
    out->push_back(entry);
  }
  return lost;
}

}  // namespace pymon
