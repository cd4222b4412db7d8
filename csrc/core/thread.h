// Threads of ours in somebody else's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

#include <cstdint>
#include <cstring>

#include "core/clock.h"

namespace pymon {

// For the first lines of a thread: its name in `top -H` (15 characters), and no signal of the user's is ever handled on
// it. The signals are blocked before the thread starts, so that there is no moment in between.
inline bool start_thread(pthread_t* thread, const char* name, void* (*run)(void*), void* argument) noexcept {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);  // blocking those only hides a crash
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(thread, nullptr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return false;
  pthread_setname_np(*thread, name);
  return true;
}

inline uint64_t thread_cpu_ns() noexcept { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace pymon
