#include "bind/probe_state.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "bind/probe_gpu.h"
#include "bind/probe_optimizers.h"

namespace pymon {
namespace {

thread_local ThreadClock t_clock;

}  // namespace

ProbeState& probe_state() noexcept {
  static ProbeState state;
  return state;
}

ThreadClock& this_thread_clock() noexcept { return t_clock; }

void note_activity() noexcept {
  ProbeState& state = probe_state();
  if (state.active) return;
  state.active = true;
  state.clock.set_thread(static_cast<uint64_t>(syscall(SYS_gettid)));
  if (state.on_activity == nullptr) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);  // a hook may run while an exception of the user's is on its way
  PyObject* result = PyObject_CallNoArgs(state.on_activity);
  if (result == nullptr) PyErr_WriteUnraisable(state.on_activity);
  Py_XDECREF(result);
  PyErr_Restore(type, value, trace);
}

bool call_on_step() noexcept {
  ProbeState& state = probe_state();
  if (state.on_step == nullptr) return true;
  PyObject* callback = state.on_step;
  Py_INCREF(callback);  // it may clear itself
  PyObject* result = PyObject_CallFunction(callback, "K", static_cast<unsigned long long>(state.clock.steps_total()));
  bool fine = true;
  if (result == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
      PyErr_WriteUnraisable(callback);
    } else {
      fine = false;  // Ctrl-C belongs to the user
    }
  }
  Py_XDECREF(result);
  Py_DECREF(callback);
  return fine;
}

void forget_in_child() noexcept {
  ProbeState& state = probe_state();
  if (state.page != nullptr) state.page->disarm_in_child();
  state.page = nullptr;  // leaked on purpose: freeing is not safe between fork and exec
  state.clock.reset();
  state.on_step = nullptr;  // borrowed from the parent's life; its reference is leaked likewise
  state.active = false;     // a child that trains is a rank of its own
  t_clock = ThreadClock{};
  forget_optimizers_in_child();
  forget_gpu_in_child();
}

}  // namespace pymon
