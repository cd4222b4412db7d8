// Writer and reader of the page, and the reader against what is no page.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/page_reader.h"
#include "core/page_writer.h"
#include "core/seqlock.h"

using namespace pymon;

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
const uint8_t kId[16] = {0xa1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0x1f};

std::unique_ptr<PageWriter> new_writer() {
  auto made = PageWriter::create(kId);
  REQUIRE(made.ok());
  return std::unique_ptr<PageWriter>(made.value());
}

std::unique_ptr<PageReader> reader_of(int fd) {
  auto opened = PageReader::open(fd);
  REQUIRE(opened.ok());
  return std::move(opened.value());
}

std::string refusal_of(int fd) {
  auto opened = PageReader::open(fd);
  return opened.ok() ? std::string() : opened.error().text;
}

// Every word names the step, so that a torn entry is seen.
RingEntry entry_of(uint64_t step) {
  RingEntry entry{};
  entry.step = step;
  entry.end_mono_ns = entry.duration_ns = entry.counts = entry.flags = entry.own_ns = step;
  for (uint64_t& ns : entry.phase_ns) ns = step;
  return entry;
}

bool whole(const RingEntry& entry) {
  const RingEntry expected = entry_of(entry.step);
  return std::memcmp(&entry, &expected, sizeof entry) == 0;
}

// A second mapping of a page, to do what no honest writer does.
struct Mapping {
  explicit Mapping(int fd)
      : words(static_cast<uint64_t*>(mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))) {
    REQUIRE(words != MAP_FAILED);
  }
  ~Mapping() { munmap(words, kPageBytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint64_t& at(uint64_t byte) const { return words[byte / 8]; }
  uint64_t& step_at_slot(uint64_t slot) const { return at(kRingOffset + slot * sizeof(RingEntry)); }

  uint64_t* words;
};

struct Memfd {
  Memfd(off_t bytes, int seals) : fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(fd, bytes) == 0);
    REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
  }
  ~Memfd() { close(fd); }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;

  int fd;
};

}  // namespace

TEST_CASE("a fresh page tells whose it is and holds nothing yet") {
  const uint64_t before_ns = mono_ns();
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  const Header& header = reader->header();
  CHECK(header.major == kMajor);
  CHECK(header.minor == kMinor);
  CHECK(header.pid == static_cast<uint64_t>(getpid()));
  CHECK(header.start_ticks > 0);
  CHECK(header.created_mono_ns >= before_ns);
  CHECK(header.created_mono_ns <= mono_ns());
  CHECK(std::memcmp(header.attach_id, kId, sizeof kId) == 0);
  GpuBody gpu;
  REQUIRE(reader->gpu(&gpu));
  CHECK(gpu.state == kLayerOff);
  CuptiBody cupti;
  REQUIRE(reader->cupti(&cupti));
  CHECK(cupti.head.records_total == 0);
  std::vector<GpuRingEntry> gpu_steps;
  reader->gpu_steps_after(0, &gpu_steps);
  CHECK(gpu_steps.empty());

  TrainBody body;
  REQUIRE(reader->train(&body));
  CHECK(body.steps_total == 0);
  std::vector<RingEntry> steps;
  CHECK(reader->steps_after(0, &steps) == 0);
  CHECK(steps.empty());
}

TEST_CASE("the size of the page can no more be changed, and no exec inherits it") {
  const auto writer = new_writer();
  CHECK(ftruncate(writer->fd(), 0) == -1);
  CHECK(ftruncate(writer->fd(), 2 * kPageBytes) == -1);
  CHECK((fcntl(writer->fd(), F_GET_SEALS) & (kSeals | F_SEAL_SEAL)) == (kSeals | F_SEAL_SEAL));
  CHECK((fcntl(writer->fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("the body is seen once it is published") {
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  writer->body().steps_total = 12;
  std::strcpy(writer->body().user_phase_names[1], "augment");
  TrainBody body;
  REQUIRE(reader->train(&body));
  CHECK(body.steps_total == 0);
  writer->publish();
  REQUIRE(reader->train(&body));
  CHECK(std::memcmp(&body, &writer->body(), sizeof body) == 0);
}

TEST_CASE("the ring gives what is new, and counts what was overwritten") {
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  writer->push_step(entry_of(0));  // no step has this number
  for (uint64_t step = 1; step <= kRingEntries + 904; ++step) writer->push_step(entry_of(step));

  std::vector<RingEntry> steps;
  CHECK(reader->steps_after(0, &steps) == 904);
  REQUIRE(steps.size() == kRingEntries);
  CHECK(steps.front().step == 905);
  CHECK(steps.back().step == 5000);
  for (const RingEntry& entry : steps) CHECK(whole(entry));

  steps.clear();
  CHECK(reader->steps_after(4990, &steps) == 0);
  CHECK(steps.size() == 10);
  steps.clear();
  CHECK(reader->steps_after(5000, &steps) == 0);
  CHECK(reader->steps_after(UINT64_MAX, &steps) == 0);
  CHECK(steps.empty());
}

TEST_CASE("a writer that died costs the entry it was writing and no other") {
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  for (uint64_t step = 1; step <= 10; ++step) writer->push_step(entry_of(step));
  writer->publish();
  const Mapping page(writer->fd());
  page.step_at_slot(4) = 0;
  page.at(kTrainOffset) |= 1;

  std::vector<RingEntry> steps;
  CHECK(reader->steps_after(0, &steps) == 1);
  CHECK(steps.size() == 9);
  TrainBody body;
  CHECK_FALSE(reader->train(&body));
  writer->publish();
  CHECK(reader->train(&body));
}

TEST_CASE("nonsense in the ring is passed over") {
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  for (uint64_t step = 1; step <= 3; ++step) writer->push_step(entry_of(step));
  const Mapping page(writer->fd());
  page.step_at_slot(100) = 77;  // no number for this slot
  std::vector<RingEntry> steps;
  CHECK(reader->steps_after(0, &steps) == 0);
  CHECK(steps.size() == 3);

  page.step_at_slot(kRingEntries - 1) = UINT64_MAX;  // fits its slot: the largest number there is
  steps.clear();
  CHECK(reader->steps_after(0, &steps) == UINT64_MAX - 1);
  CHECK(steps.size() == 1);
}

TEST_CASE("a ring read while it is lapped gives whole entries, each once, in order") {
  constexpr uint64_t kSteps = 12 * kRingEntries;
  const auto writer = new_writer();
  const auto reader = reader_of(writer->fd());
  std::thread pusher([&] {
    for (uint64_t step = 1; step <= kSteps; ++step) writer->push_step(entry_of(step));
  });
  uint64_t seen = 0, taken = 0, lost = 0, torn = 0, disordered = 0;
  while (seen < kSteps) {
    std::vector<RingEntry> steps;
    const uint64_t gone = reader->steps_after(seen, &steps);
    uint64_t last = seen;
    for (const RingEntry& entry : steps) {
      torn += !whole(entry);
      disordered += entry.step <= last;
      last = entry.step;
    }
    seen += steps.size() + gone;
    taken += steps.size();
    lost += gone;
  }
  pusher.join();
  CHECK(torn == 0);
  CHECK(disordered == 0);
  CHECK(taken + lost == kSteps);
  CHECK(taken > 0);
}

TEST_CASE("the child of a fork cannot reach the page") {
  const auto writer = new_writer();
  writer->body().steps_total = 5;
  writer->publish();
  writer->push_step(entry_of(5));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    writer->disarm_in_child();
    writer->body().steps_total = 6;
    writer->publish();
    writer->push_step(entry_of(6));
    _exit(writer->fd() == -1 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);

  const auto reader = reader_of(writer->fd());
  TrainBody body;
  REQUIRE(reader->train(&body));
  CHECK(body.steps_total == 5);
  std::vector<RingEntry> steps;
  reader->steps_after(0, &steps);
  CHECK(steps.back().step == 5);
}

TEST_CASE("a reader keeps its page after the descriptor and the writer are gone") {
  auto writer = new_writer();
  writer->body().steps_total = 3;
  writer->publish();
  const auto reader = reader_of(writer->fd());
  writer.reset();
  TrainBody body;
  REQUIRE(reader->train(&body));
  CHECK(body.steps_total == 3);
}

TEST_CASE("what is no sealed memfd is refused before it is mapped") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(refusal_of(ends[0]).find("not a memfd") == 0);
  close(ends[0]);
  close(ends[1]);
  CHECK(refusal_of(-1).find("not a memfd") == 0);
  CHECK(refusal_of(Memfd(kPageBytes, 0).fd).find("not sealed") != std::string::npos);
  CHECK(refusal_of(Memfd(kPageBytes, F_SEAL_SHRINK).fd).find("not sealed") != std::string::npos);
  CHECK(refusal_of(Memfd(0, kSeals).fd).find("no size") == 0);
  CHECK(refusal_of(Memfd(255, kSeals).fd).find("no size") == 0);
  CHECK(refusal_of(Memfd(off_t{1} << 40, kSeals).fd).find("no size") == 0);
  CHECK(refusal_of(Memfd(256, kSeals).fd).find("not ready") != std::string::npos);
}

TEST_CASE("no header leads outside of the page") {
  const auto writer = new_writer();
  const Mapping page(writer->fd());
  Header sound;
  std::memcpy(&sound, page.words, sizeof sound);
  std::mt19937_64 random(1);
  const uint64_t odd_values[] = {0, 1, 7, 255, 256, kPageBytes - 8, kPageBytes, UINT64_MAX, UINT64_MAX - 7,
                                 uint64_t{1} << 63};
  uint64_t opened_total = 0;
  for (int round = 0; round < 3000; ++round) {
    std::memcpy(page.words, &sound, sizeof sound);
    for (int change = 0; change < 1 + round % 3; ++change) {
      const uint64_t word = 9 + random() % 9;  // the offsets and sizes
      page.words[word] = round % 2 ? odd_values[random() % 10] : random() % (2 * kPageBytes);
    }
    auto opened = PageReader::open(writer->fd());
    if (!opened.ok()) continue;
    ++opened_total;
    TrainBody body;
    std::vector<RingEntry> steps;
    (void)opened.value()->train(&body);
    (void)opened.value()->steps_after(0, &steps);
  }
  CHECK(opened_total > 0);
}

TEST_CASE("a header that changes after it was checked misleads nobody") {
  const auto writer = new_writer();
  for (uint64_t step = 1; step <= 3; ++step) writer->push_step(entry_of(step));
  const auto reader = reader_of(writer->fd());
  const Mapping page(writer->fd());
  page.at(offsetof(Header, ring_offset)) = UINT64_MAX - 7;
  page.at(offsetof(Header, ring_entries)) = 0;
  std::vector<RingEntry> steps;
  CHECK(reader->steps_after(0, &steps) == 0);
  CHECK(steps.size() == 3);
}
