#include "bind/probe_events.h"

#include <cstring>
#include <string>

#include "bind/probe_state.h"
#include "core/clock.h"

namespace py = pybind11;

namespace pymon {
namespace {

uint64_t g_gc_begin_ns = 0;  // collections do not nest
PyObject* g_generation = nullptr;
PyObject* g_collected = nullptr;

uint64_t open_step() noexcept { return probe_state().clock.steps_total() + 1; }

long item(PyObject* info, PyObject* name) noexcept {
  PyObject* value = PyDict_Check(info) ? PyDict_GetItemWithError(info, name) : nullptr;
  return value != nullptr && PyLong_Check(value) ? PyLong_AsLong(value) : -1;
}

// A collection may run wherever objects are made, an exception of the user's on its way included.
PyObject* gc_event(PyObject*, PyObject* const* args, Py_ssize_t size) noexcept {
  const uint64_t now_ns = mono_ns();
  if (size != 2 || !PyUnicode_Check(args[0])) Py_RETURN_NONE;
  if (PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
    g_gc_begin_ns = now_ns;
    Py_RETURN_NONE;
  }
  if (g_gc_begin_ns == 0) Py_RETURN_NONE;  // it began before we were there
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  const long generation = item(args[1], g_generation);
  const long collected = item(args[1], g_collected);
  PyErr_Restore(type, value, trace);  // drops what the two looks may have raised
  event_log().note(generation >= 2 ? kGcFull : kGcYoung, g_gc_begin_ns, now_ns - g_gc_begin_ns, open_step(),
                   collected > 0 ? static_cast<uint64_t>(collected) : 0);
  g_gc_begin_ns = 0;
  Py_RETURN_NONE;
}

PyMethodDef g_methods[] = {
    {"gc_event", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(gc_event)), METH_FASTCALL,
     "For gc.callbacks."},
    {nullptr, nullptr, 0, nullptr},
};

EventKind kind_of(const std::string& name) {
  for (uint32_t kind = 0; kind < kEventKindsUsed; ++kind) {
    if (name == kEventKindNames[kind]) return static_cast<EventKind>(kind);
  }
  throw py::value_error("no kind of event: " + name);
}

}  // namespace

EventLog& event_log() noexcept {
  static EventLog log;
  return log;
}

void bind_events(py::module_& module) {
  g_generation = PyUnicode_InternFromString("generation");
  g_collected = PyUnicode_InternFromString("collected");
  if (PyModule_AddFunctions(module.ptr(), g_methods) != 0) throw py::error_already_set();
  module.def(
      "note_event",
      [](const std::string& kind, uint64_t begin_ns, uint64_t duration_ns, uint64_t detail, uint64_t times) {
        event_log().note(kind_of(kind), begin_ns, duration_ns, open_step(), detail, times);
      },
      py::arg("kind"), py::arg("begin_mono_ns"), py::arg("duration_ns"), py::arg("detail") = 0, py::arg("times") = 1);
  module.def("watch_event", [](const std::string& kind) { event_log().watch(kind_of(kind)); }, py::arg("kind"));
  module.def("set_unseen_events", [](const std::string& why) { event_log().set_unseen(why.c_str()); }, py::arg("why"));
  module.def("set_cudnn_benchmark", [](bool on) { event_log().set_cudnn_benchmark(on); }, py::arg("on"));
  module.def("training_tid", [] { return probe_state().clock.body().training_tid; },
             "Of the thread that trained first; 0 before that.");
}

void forget_events_in_child() noexcept {
  event_log().reset();
  g_gc_begin_ns = 0;
}

}  // namespace pymon
