// What the hooks of one training process share. Every access holds the GIL, which thereby makes the page's one writer.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "core/clock.h"
#include "core/page_writer.h"
#include "core/step_clock.h"

namespace pymon {

struct ProbeState {
  StepClock clock;
  PageWriter* page = nullptr;      // kept until the process ends: a hook may run as late as that
  PyObject* on_activity = nullptr;  // called once, at the first training activity of this process
  PyObject* on_second = nullptr;    // likewise, once a second at most
  uint64_t second_ns = 0;           // when it was called last
  PyObject* on_step = nullptr;      // called in the training thread after each boundary while it is set
  bool active = false;              // the first activity was there
};

ProbeState& probe_state() noexcept;

// Of the thread that runs a hook; in a thread of the autograd engine (each CUDA device has one, where checkpoints compute
// again and optimizers may step) that of the thread that waits for the backward pass.
ThreadClock& this_thread_clock() noexcept;

// The clock, read; kept for hooks that do without.
inline uint64_t clock_of(ThreadClock& thread) noexcept { return thread.now_ns = mono_ns(); }

// What a hook takes for the time where only phases need it: the clock, or what it was last where phases are shed.
inline uint64_t hook_ns(ThreadClock& thread) noexcept {
  return probe_state().clock.shed() < kShedPhases ? clock_of(thread) : thread.now_ns != 0 ? thread.now_ns : clock_of(thread);
}

// Whether the end of this thread's backward pass may be that of a step.
inline bool ends_steps(const ThreadClock& thread) noexcept {
  return thread.stepped_in_backward || probe_state().clock.counts_backwards();
}

// Whether torch only records this backward pass (torch.compile, torch.export): it is then one of fake tensors. `values`
// are those of the call, one of them the outputs it begins at; plain tensors answer at once, without asking torch.
bool is_traced(PyObject* const* values, Py_ssize_t size) noexcept;

// What the two above ask, without arguments: an int that is negative outside the engine; None outside a trace.
void set_torch_state(const pybind11::object& graph_task, const pybind11::object& tracing_mode,
                     const pybind11::object& tensor_type);

// The first backward pass or optimizer call: only now is this process a rank (a launcher or a loader worker never is).
void note_activity() noexcept;

// Calls `on_step`; an exception of it that is no interrupt ends there. False: an interrupt is set, and must go on.
bool call_on_step() noexcept;

// Called in a fork's child by pthread_atfork.
void forget_in_child() noexcept;

}  // namespace pymon
