#include "core/page_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/seqlock.h"

namespace pymon {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

const uint64_t* words_at(const unsigned char* page, uint64_t offset) noexcept {
  return reinterpret_cast<const uint64_t*>(page + offset);
}

// Whether [offset, offset + bytes) is a place for words between the header and the end; never overflows.
bool inside(uint64_t offset, uint64_t bytes, uint64_t page_bytes) noexcept {
  return offset % 8 == 0 && offset >= sizeof(Header) && offset <= page_bytes && bytes <= page_bytes - offset;
}

// Empty where the header is sound, else what is wrong with it. Offsets are the header's own, so that a later minor
// number may make room as it needs.
std::string fault_in(const Header& header, uint64_t page_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "no page of pymon, or not ready yet";
  if (header.major != kMajor) {
    return "page layout " + std::to_string(header.major) + ", this pymon reads " + std::to_string(kMajor);
  }
  if (header.page_bytes != page_bytes) return "its header names another size";
  if (header.train_bytes < sizeof(TrainSection) ||
      !inside(header.train_offset, header.train_bytes, page_bytes)) {
    return "its training section lies outside of it";
  }
  const uint64_t entry_bytes = header.ring_entry_bytes;
  if (entry_bytes < sizeof(RingEntry) || entry_bytes % 8 != 0 || header.ring_entries == 0 ||
      header.ring_entries > page_bytes / entry_bytes ||
      !inside(header.ring_offset, header.ring_entries * entry_bytes, page_bytes)) {
    return "its ring lies outside of it";
  }
  // Offset 0: the page, of an older writer, has no such section.
  const auto sound = [page_bytes](uint64_t offset, uint64_t bytes, uint64_t least) {
    return offset == 0 || (bytes >= least && inside(offset, bytes, page_bytes));
  };
  if (!sound(header.gpu_offset, header.gpu_bytes, sizeof(GpuSection)) ||
      !sound(header.cupti_offset, header.cupti_bytes, sizeof(CuptiSection))) {
    return "its GPU sections lie outside of it";
  }
  if (!sound(header.events_offset, header.events_bytes, sizeof(EventsSection))) {
    return "its section of events lies outside of it";
  }
  if (!sound(header.run_offset, header.run_bytes, sizeof(RunSection))) return "its run section lies outside of it";
  if (!sound(header.collectives_offset, header.collectives_bytes, sizeof(CollectivesSection))) {
    return "its section of collectives lies outside of it";
  }
  if (!sound(header.memory_offset, header.memory_bytes, sizeof(MemorySection))) {
    return "its section of memory lies outside of it";
  }
  if (!sound(header.recorder_offset, header.recorder_bytes, sizeof(RecorderSection))) {
    return "its section of the flight recorder lies outside of it";
  }
  if (header.gpu_ring_offset == 0) return {};
  const uint64_t gpu_entry_bytes = header.gpu_ring_entry_bytes;
  if (gpu_entry_bytes < sizeof(GpuRingEntry) || gpu_entry_bytes % 8 != 0 || header.gpu_ring_entries == 0 ||
      header.gpu_ring_entries > page_bytes / gpu_entry_bytes ||
      !inside(header.gpu_ring_offset, header.gpu_ring_entries * gpu_entry_bytes, page_bytes)) {
    return "its GPU ring lies outside of it";
  }
  return {};
}

// Appends the entries of a ring whose number, their first word, is above `after`, in its order. Any may be missing.
template <typename Entry>
void entries_after(const uint64_t* ring, uint64_t entry_bytes, uint64_t entries, uint64_t after,
                   std::vector<Entry>* out) {
  const auto number_of = [](const Entry& entry) {
    uint64_t number;
    std::memcpy(&number, &entry, sizeof number);
    return number;
  };
  const size_t before = out->size();
  for (uint64_t slot = 0; slot < entries; ++slot) {
    const uint64_t* words = ring + slot * (entry_bytes / 8);
    const uint64_t wanted = load_acquire(words);
    if (wanted <= after || wanted % entries != slot) continue;
    Entry copy;
    load_words(&copy, words, sizeof copy / 8);
    if (number_of(copy) == wanted && load_relaxed(words) == wanted) out->push_back(copy);
  }
  std::sort(out->begin() + static_cast<std::ptrdiff_t>(before), out->end(),
            [number_of](const Entry& a, const Entry& b) { return number_of(a) < number_of(b); });
}

}  // namespace

Result<std::unique_ptr<PageReader>> PageReader::open(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Error::system("not a memfd", errno);
  if ((seals & kSeals) != kSeals) return Error::because("memfd is not sealed against shrinking and growing");
  struct stat status;
  if (fstat(fd, &status) != 0) return Error::system("fstat of the page", errno);
  const auto page_bytes = static_cast<uint64_t>(status.st_size);
  if (page_bytes < sizeof(Header) || page_bytes > kMaxPageBytes) {
    return Error::because("no size for a page: " + std::to_string(page_bytes) + " bytes");
  }
  void* mapped = mmap(nullptr, page_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return Error::system("mmap of the page", errno);

  const auto* page = static_cast<const unsigned char*>(mapped);
  Header header;
  load_words(&header, words_at(page, 0), sizeof header / 8);
  std::unique_ptr<PageReader> reader(new PageReader(page, page_bytes, header));  // unmaps on every return below
  std::string fault = fault_in(header, page_bytes);
  if (!fault.empty()) return Error::because(std::move(fault));
  return reader;
}

PageReader::~PageReader() { munmap(const_cast<unsigned char*>(page_), bytes_); }

void PageReader::copy(std::vector<uint64_t>* out) const {
  out->resize(bytes_ / 8);
  load_words(out->data(), words_at(page_, 0), bytes_ / 8);
}

bool PageReader::train(TrainBody* out) const noexcept {
  const uint64_t* section = words_at(page_, header_.train_offset);
  const uint64_t* body = section + offsetof(TrainSection, body) / 8;
  return seqlock_copy(section, body, out, kTrainWords, kSeqlockAttempts);
}

bool PageReader::gpu(GpuBody* out) const noexcept {
  if (header_.gpu_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.gpu_offset);
  return seqlock_copy(section, section + offsetof(GpuSection, body) / 8, out, kGpuWords, kSeqlockAttempts);
}

bool PageReader::cupti(CuptiBody* out) const noexcept {
  if (header_.cupti_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.cupti_offset);
  return seqlock_copy(section, section + offsetof(CuptiSection, body) / 8, out, kCuptiWords, kSeqlockAttempts);
}

bool PageReader::run(RunBody* out) const noexcept {
  if (header_.run_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.run_offset);
  return seqlock_copy(section, section + offsetof(RunSection, body) / 8, out, kRunWords, kSeqlockAttempts);
}

void PageReader::gpu_steps_after(uint64_t step, std::vector<GpuRingEntry>* out) const {
  if (header_.gpu_ring_offset == 0) return;
  entries_after(words_at(page_, header_.gpu_ring_offset), header_.gpu_ring_entry_bytes, header_.gpu_ring_entries, step,
                out);
}

bool PageReader::events(EventsBody* out) const noexcept {
  if (header_.events_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.events_offset);
  return seqlock_copy(section, section + offsetof(EventsSection, body) / 8, out, kEventsWords, kSeqlockAttempts);
}

bool PageReader::collectives(CollectivesBody* out) const noexcept {
  if (header_.collectives_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.collectives_offset);
  return seqlock_copy(section, section + offsetof(CollectivesSection, body) / 8, out, kCollectivesWords,
                      kSeqlockAttempts);
}

bool PageReader::memory(MemoryBody* out) const noexcept {
  if (header_.memory_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.memory_offset);
  return seqlock_copy(section, section + offsetof(MemorySection, body) / 8, out, kMemoryWords, kSeqlockAttempts);
}

bool PageReader::recorder(RecorderBody* out) const noexcept {
  if (header_.recorder_offset == 0) return false;
  const uint64_t* section = words_at(page_, header_.recorder_offset);
  return seqlock_copy(section, section + offsetof(RecorderSection, body) / 8, out, kRecorderWords,
                      kSeqlockAttempts);
}

void PageReader::events_after(uint64_t number, std::vector<EventEntry>* out) const {
  if (header_.events_offset == 0) return;
  entries_after(words_at(page_, header_.events_offset + offsetof(EventsSection, ring)), sizeof(EventEntry),
                kEventRingEntries, number, out);
}

const uint64_t* PageReader::entry(uint64_t step) const noexcept {
  return words_at(page_, header_.ring_offset + step % header_.ring_entries * header_.ring_entry_bytes);
}

// By looking at every entry: a writer that died, skipped a number or wrote nonsense into one spoils no other.
uint64_t PageReader::newest_step() const noexcept {
  uint64_t newest = 0;
  for (uint64_t slot = 0; slot < header_.ring_entries; ++slot) {
    const uint64_t step = load_acquire(entry(slot));
    if (step % header_.ring_entries == slot) newest = std::max(newest, step);
  }
  return newest;
}

// All up to the newest were finished before it, so an entry that now holds another number was overwritten meanwhile.
uint64_t PageReader::steps_after(uint64_t step, std::vector<RingEntry>* out) const {
  const uint64_t newest = newest_step();
  if (newest <= step) return 0;
  const uint64_t held = std::min(newest - step, header_.ring_entries);
  const size_t before = out->size();
  for (uint64_t wanted = newest - held + 1; wanted != newest + 1; ++wanted) {
    const uint64_t* words = entry(wanted);
    RingEntry copy;
    load_words(&copy, words, sizeof copy / 8);
    if (copy.step == wanted && load_relaxed(words) == wanted) out->push_back(copy);
  }
  return newest - step - (out->size() - before);
}

}  // namespace pymon
