#include "bind/probe_state.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "bind/probe_collectives.h"
#include "bind/probe_events.h"
#include "bind/probe_gpu.h"
#include "bind/probe_loaders.h"
#include "bind/probe_memory.h"
#include "bind/probe_optimizers.h"

namespace pymon {
namespace {

thread_local ThreadClock t_clock;
constexpr uint64_t kSecondNs = 1'000'000'000;
PyObject* g_graph_task = nullptr;
PyObject* g_tracing_mode = nullptr;
PyObject* g_tensor_type = nullptr;  // compared only

// What `question` answers; null where it cannot be asked. An exception of the user's may be on its way meanwhile.
PyObject* ask(PyObject* question) noexcept {
  if (question == nullptr) return nullptr;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* answer = PyObject_CallNoArgs(question);
  PyErr_Restore(type, value, trace);  // drops what the call may have raised
  return answer;
}

bool in_engine() noexcept {
  PyObject* task = ask(g_graph_task);
  const bool inside = task != nullptr && PyLong_Check(task) && PyLong_AsLong(task) >= 0;
  Py_XDECREF(task);
  return inside;
}

}  // namespace

ProbeState& probe_state() noexcept {
  static ProbeState state;
  return state;
}

ThreadClock& this_thread_clock() noexcept {
  ThreadClock* waiting = probe_state().clock.waiting();
  const bool ours = waiting == nullptr || waiting == &t_clock || t_clock.backward_depth > 0;
  ThreadClock& thread = ours || !in_engine() ? t_clock : *waiting;
  if (thread.epoch != probe_state().clock.epoch()) probe_state().clock.restart(thread);
  return thread;
}

bool is_traced(PyObject* const* values, Py_ssize_t size) noexcept {
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!PyTuple_Check(values[i]) || PyTuple_GET_SIZE(values[i]) == 0) continue;
    if (reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(values[i], 0))) == g_tensor_type) return false;
    break;
  }
  PyObject* mode = ask(g_tracing_mode);
  Py_XDECREF(mode);
  return mode != nullptr && mode != Py_None;
}

void set_torch_state(const pybind11::object& graph_task, const pybind11::object& tracing_mode,
                     const pybind11::object& tensor_type) {
  const auto kept = [](const pybind11::object& call) { return call.is_none() ? nullptr : pybind11::object(call).release().ptr(); };
  if (g_graph_task == nullptr) g_graph_task = kept(graph_task);
  if (g_tracing_mode == nullptr) g_tracing_mode = kept(tracing_mode);
  if (g_tensor_type == nullptr) g_tensor_type = kept(tensor_type);
  set_tensor_type(g_tensor_type);
}

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
  const uint64_t boundary_ns = state.clock.body().last_boundary_mono_ns;
  if (state.on_second != nullptr && boundary_ns - state.second_ns >= kSecondNs) {
    state.second_ns = boundary_ns;
    const uint64_t begin_ns = mono_ns();
    PyObject* result = PyObject_CallNoArgs(state.on_second);
    if (result == nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) return false;
    if (result == nullptr) PyErr_WriteUnraisable(state.on_second);
    Py_XDECREF(result);
    state.clock.add_own(this_thread_clock(), mono_ns() - begin_ns);
  }
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
  forget_loaders_in_child();
  forget_gpu_in_child();
  forget_events_in_child();
  publish_collectives_to(nullptr);
  publish_memory_to(nullptr);
}

}  // namespace pymon
