// The GPU layers of a training process, as its hooks and its Python half see them.
#pragma once

#include <pybind11/pybind11.h>

#include "bind/probe_state.h"

namespace pymon {

extern bool g_marks_gpu;  // under the GIL; false while no GPU layer runs, which costs the hooks one look
void mark_gpu(uint32_t ended, bool stepped) noexcept;
void leave_gpu_gap() noexcept;

// After each call of the step clock, in the thread that made it: passes on what phase ended, and whether a step did.
inline void mark_phase(ThreadClock& thread, bool stepped) noexcept {
  const uint32_t ended = thread.ended_phase;
  if (ended == kNoPhase) return;
  thread.ended_phase = kNoPhase;
  if (!g_marks_gpu) return;
  if (thread.left_out) leave_gpu_gap();  // an evaluation or a save: the GPU's time of this step is not known
  thread.left_out = false;
  const uint64_t shed = probe_state().clock.shed();
  if (shed < kShedPhases) {
    mark_gpu(ended, stepped);
  } else if (stepped && shed < kShedRecords) {
    mark_gpu(kPhases - 1, true);  // a step's GPU time then belongs to no phase
  }
}

void bind_gpu(pybind11::module_& module);
void forget_gpu_in_child() noexcept;

}  // namespace pymon
