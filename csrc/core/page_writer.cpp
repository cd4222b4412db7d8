#include "core/page_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "core/clock.h"
#include "core/process_start.h"
#include "core/seqlock.h"

namespace pymon {
namespace {

constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3; where vm.memfd_noexec is 2 nothing else is allowed

int sealable_memfd() noexcept {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create("pymon-page", flags | kNoExecSeal);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create("pymon-page", flags);
}

// A ring's entry: its number is taken away first and given last, so that a reader never takes half an entry for one.
template <typename Entry>
void push_entry(uint64_t* words, const Entry& entry, uint64_t number) noexcept {
  store_relaxed(words, 0);
  store_words(words + 1, reinterpret_cast<const char*>(&entry) + 8, sizeof entry / 8 - 1);
  store_release(words, number);
}

Error failed(const char* what, int fd) {
  Error error = Error::system(what, errno);
  if (fd >= 0) close(fd);
  return error;
}

}  // namespace

Result<PageWriter*> PageWriter::create(const uint8_t attach_id[16]) {
  const int fd = sealable_memfd();
  if (fd < 0) return failed("memfd_create", -1);
  if (ftruncate(fd, kPageBytes) != 0) return failed("ftruncate of the page", fd);
  // A reader of a page that shrinks dies of SIGBUS; the seals are what lets the daemon map it.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("sealing of the page", fd);
  }
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return failed("mmap of the page", fd);
  auto* writer = new (std::nothrow) PageWriter(fd, static_cast<unsigned char*>(page));
  if (writer == nullptr) {
    munmap(page, kPageBytes);
    close(fd);
    return Error::system("page writer", ENOMEM);
  }
  writer->write_header(attach_id);
  return writer;
}

PageWriter::~PageWriter() { disarm_in_child(); }

void PageWriter::write_header(const uint8_t attach_id[16]) noexcept {
  Header header{};
  header.major = kMajor;
  header.minor = kMinor;
  header.page_bytes = kPageBytes;
  header.pid = static_cast<uint64_t>(getpid());
  header.start_ticks = start_ticks();
  header.created_mono_ns = mono_ns();
  header.created_real_ns = real_ns();
  std::memcpy(header.attach_id, attach_id, sizeof header.attach_id);
  header.train_offset = kTrainOffset;
  header.train_bytes = sizeof(TrainSection);
  header.gpu_offset = kGpuOffset;
  header.gpu_bytes = sizeof(GpuSection);
  header.cupti_offset = kCuptiOffset;
  header.cupti_bytes = sizeof(CuptiSection);
  header.ring_offset = kRingOffset;
  header.ring_entry_bytes = sizeof(RingEntry);
  header.ring_entries = kRingEntries;
  header.gpu_ring_offset = kGpuRingOffset;
  header.gpu_ring_entry_bytes = sizeof(GpuRingEntry);
  header.gpu_ring_entries = kGpuRingEntries;
  header.events_offset = kEventsOffset;
  header.events_bytes = sizeof(EventsSection);
  header.run_offset = kRunOffset;
  header.run_bytes = sizeof(RunSection);
  header.collectives_offset = kCollectivesOffset;
  header.collectives_bytes = sizeof(CollectivesSection);
  header.memory_offset = kMemoryOffset;
  header.memory_bytes = sizeof(MemorySection);
  header.recorder_offset = kRecorderOffset;
  header.recorder_bytes = sizeof(RecorderSection);

  auto* words = reinterpret_cast<uint64_t*>(page_);
  store_words(words, &header, sizeof header / 8);
  uint64_t magic;
  std::memcpy(&magic, kMagic, sizeof magic);
  store_release(words, magic);
}

void PageWriter::publish() noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kTrainOffset);
  seqlock_publish(section, section + offsetof(TrainSection, body) / 8, &body_, kTrainWords);
}

void PageWriter::publish_step(const uint16_t* buckets, uint32_t size) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kTrainOffset);
  uint64_t* words = section + offsetof(TrainSection, body) / 8;
  const uint64_t even = seqlock_begin(section);
  store_words(words, &body_, kTrainTotalsWords);
  for (uint32_t i = 0; i < size; ++i) {
    store_words(words + buckets[i], reinterpret_cast<const char*>(&body_) + 8 * buckets[i], 1);
  }
  seqlock_end(section, even);
}

void PageWriter::note_doing(uint64_t doing) noexcept {
  body_.doing = doing;
  if (page_ == nullptr) return;
  store_relaxed(words_at(kTrainOffset + offsetof(TrainSection, body) + offsetof(TrainBody, doing)), doing);
}

void PageWriter::prefetch_step(uint64_t step) const noexcept {
  if (page_ == nullptr) return;
  constexpr size_t kLine = 64;
  const unsigned char* entry = page_ + kRingOffset + step % kRingEntries * sizeof(RingEntry);
  for (size_t at = 0; at < sizeof(RingEntry); at += kLine) __builtin_prefetch(entry + at, 1);
  const unsigned char* totals = page_ + kTrainOffset;
  for (size_t at = 0; at < 8 * kTrainTotalsWords + kLine; at += kLine) __builtin_prefetch(totals + at, 1);
}

void PageWriter::push_step(const RingEntry& entry) noexcept {
  if (page_ == nullptr || entry.step == 0) return;
  push_entry(words_at(kRingOffset + entry.step % kRingEntries * sizeof entry), entry, entry.step);
}

void PageWriter::publish_gpu(const GpuBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kGpuOffset);
  seqlock_publish(section, section + offsetof(GpuSection, body) / 8, &body, kGpuWords);
}

void PageWriter::push_gpu_step(const GpuRingEntry& entry) noexcept {
  if (page_ == nullptr || entry.step == 0) return;
  push_entry(words_at(kGpuRingOffset + entry.step % kGpuRingEntries * sizeof entry), entry, entry.step);
}

void PageWriter::publish_run(const RunBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kRunOffset);
  seqlock_publish(section, section + offsetof(RunSection, body) / 8, &body, kRunWords);
}

void PageWriter::publish_cupti(const CuptiBody& body, uint32_t changed, bool with_reason) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kCuptiOffset);
  uint64_t* words = section + offsetof(CuptiSection, body) / 8;
  const uint64_t even = seqlock_begin(section);
  constexpr size_t kNumbers = offsetof(CuptiHead, reserved) / 8, kReason = offsetof(CuptiHead, reason) / 8;
  constexpr size_t kGaps = offsetof(CuptiHead, gap_histogram) / 8;
  store_words(words, &body.head, kNumbers);
  store_words(words + kGaps, body.head.gap_histogram, kWorkBuckets);
  if (with_reason) store_words(words + kReason, body.head.reason, kReasonBytes / 8);
  for (; changed != 0; changed &= changed - 1) {
    const auto work = static_cast<uint32_t>(__builtin_ctz(changed));
    const size_t at = kCuptiHeadWords + work * (sizeof(WorkSums) / 8);
    store_words(words + at, &body.work[work], sizeof(WorkSums) / 8);
  }
  seqlock_end(section, even);
}

void PageWriter::publish_events(const EventsBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kEventsOffset);
  seqlock_publish(section, section + offsetof(EventsSection, body) / 8, &body, kEventsWords);
}

void PageWriter::publish_collectives(const CollectivesBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kCollectivesOffset);
  seqlock_publish(section, section + offsetof(CollectivesSection, body) / 8, &body, kCollectivesWords);
}

void PageWriter::publish_memory(const MemoryBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kMemoryOffset);
  seqlock_publish(section, section + offsetof(MemorySection, body) / 8, &body, kMemoryWords);
}

void PageWriter::publish_recorder(const RecorderBody& body) noexcept {
  if (page_ == nullptr) return;
  uint64_t* section = words_at(kRecorderOffset);
  seqlock_publish(section, section + offsetof(RecorderSection, body) / 8, &body, kRecorderWords);
}

void PageWriter::push_event(const EventEntry& entry) noexcept {
  if (page_ == nullptr || entry.number == 0) return;
  const uint64_t ring = kEventsOffset + offsetof(EventsSection, ring);
  push_entry(words_at(ring + entry.number % kEventRingEntries * sizeof entry), entry, entry.number);
}

void PageWriter::disarm_in_child() noexcept {
  if (page_ == nullptr) return;
  munmap(page_, kPageBytes);
  close(fd_);
  page_ = nullptr;
  fd_ = -1;
}

}  // namespace pymon
