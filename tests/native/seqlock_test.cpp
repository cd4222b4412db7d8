// Copies are whole or are not taken.
#include "core/seqlock.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace pymon;

namespace {

constexpr size_t kWords = 64;

struct Shared {
  uint64_t seq = 0;
  uint64_t words[kWords] = {};

  void publish(uint64_t value) {
    const std::vector<uint64_t> state(kWords, value);
    seqlock_publish(&seq, words, state.data(), kWords);
  }
};

}  // namespace

TEST_CASE("a reader beside a busy writer sees only whole states, never an older one") {
  Shared shared;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t value = 1; value <= 20000; ++value) shared.publish(value);
    done = true;
  });
  uint64_t whole = 0, torn = 0, backwards = 0, last = 0;
  for (bool once_more = true; once_more;) {
    once_more = !done;
    uint64_t copy[kWords];
    if (!seqlock_copy(&shared.seq, shared.words, copy, kWords, 64)) continue;
    ++whole;
    for (uint64_t word : copy) torn += word != copy[0];
    backwards += copy[0] < last;
    last = copy[0];
  }
  writer.join();
  CHECK(whole > 0);
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(last == 20000);
}

TEST_CASE("a writer that died in mid-copy is not read, and its successor heals the lock") {
  Shared shared;
  shared.publish(7);
  uint64_t copy[kWords] = {};
  shared.seq |= 1;
  shared.words[0] = 8;
  CHECK_FALSE(seqlock_copy(&shared.seq, shared.words, copy, kWords, 64));

  shared.publish(9);
  CHECK(shared.seq % 2 == 0);
  REQUIRE(seqlock_copy(&shared.seq, shared.words, copy, kWords, 64));
  CHECK(copy[0] == 9);
}
