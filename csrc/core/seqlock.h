// One writer, any number of readers, no waiting: `seq` is odd while the writer copies, and a reader keeps its copy only
// if `seq` was even and the same before and after.
//
// There are no fences, which ThreadSanitizer does not understand. Instead each word is stored with release and loaded
// with acquire: a reader that meets one word of a newer copy thereby also sees that copy's odd `seq` afterwards. On x86
// both are plain moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pymon {

inline uint64_t load_acquire(const uint64_t* word) noexcept {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline uint64_t load_relaxed(const uint64_t* word) noexcept {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
inline void store_release(uint64_t* word, uint64_t value) noexcept {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline void store_relaxed(uint64_t* word, uint64_t value) noexcept {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

// Private bytes -> shared words. memcpy for the private side, since it may hold text.
inline void store_words(uint64_t* shared, const void* from, size_t words) noexcept {
  const char* bytes = static_cast<const char*>(from);
#pragma GCC unroll 8  // a body of hundreds of words is copied at each publication
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + 8 * i, 8);
    store_release(shared + i, word);
  }
}

// Shared words -> private bytes.
inline void load_words(void* to, const uint64_t* shared, size_t words) noexcept {
  char* bytes = static_cast<char*>(to);
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = load_acquire(shared + i);
    std::memcpy(bytes + 8 * i, &word, 8);
  }
}

// A copy of several parts goes between `begin` and `end`, which takes what `begin` gave.
//
// "| 1", not "+ 1": where a writer died in mid-copy and left `seq` odd, "+ 1" would from then on write under an even
// number, and every reader would take torn copies for whole ones. This way the next copy heals the lock.
inline uint64_t seqlock_begin(uint64_t* seq) noexcept {
  const uint64_t odd = load_relaxed(seq) | 1;
  store_relaxed(seq, odd);
  return odd + 1;
}
inline void seqlock_end(uint64_t* seq, uint64_t even) noexcept { store_release(seq, even); }

inline void seqlock_publish(uint64_t* seq, uint64_t* shared, const void* from, size_t words) noexcept {
  const uint64_t even = seqlock_begin(seq);
  store_words(shared, from, words);
  seqlock_end(seq, even);
}

// False where no attempt met a quiet moment: the writer is faster than us, stopped in mid-copy, or dead.
inline bool seqlock_copy(const uint64_t* seq, const uint64_t* shared, void* to, size_t words,
                         int attempts) noexcept {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const uint64_t before = load_acquire(seq);
    if (before & 1) continue;
    load_words(to, shared, words);
    if (load_relaxed(seq) == before) return true;
  }
  return false;
}

}  // namespace pymon
