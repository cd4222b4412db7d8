#include "bind/probe_wrapper.h"

#include <structmember.h>

#include "bind/probe_call_sites.h"
#include "bind/probe_gpu.h"
#include "bind/probe_loaders.h"
#include "bind/probe_state.h"
#include "core/clock.h"

namespace pymon {
namespace {

struct Wrapper {
  PyObject_HEAD
  PyObject* original;
  PyObject* name;  // CallTimer only
  vectorcallfunc vectorcall;
};

Wrapper* wrapper(PyObject* self) noexcept { return reinterpret_cast<Wrapper*>(self); }

// The wrapped call's own exception, if any, stays set.
PyObject* fetch(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  ProbeState& state = probe_state();
  if (state.clock.shed() >= kShedAll) return PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  ThreadClock& thread = this_thread_clock();
  const uint64_t begin_ns = hook_ns(thread);
  // Without phases the clock is not read here, and there is nothing to tell an evaluation by.
  const bool outermost = thread.data_depth == 0 && PyVectorcall_NARGS(nargsf) > 0 && state.clock.shed() < kShedPhases;
  Fetch about;
  if (outermost) about = describe_fetch(args[0]);
  state.clock.data_begin(thread, begin_ns, about);
  const bool looks = outermost && !thread.evaluation.open && look_is_due(begin_ns);
  if (looks) look_at_queue(state.clock.run(), args[0]);
  mark_phase(thread, false);
  const uint64_t called_ns = hook_ns(thread);
  PyObject* result = PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  const uint64_t returned_ns = hook_ns(thread);
  if (result != nullptr && outermost) describe_batch(about, result);
  if (result != nullptr && looks) look_at_batch(state.clock.run(), result);
  state.clock.data_end(thread, returned_ns, result != nullptr, about);
  mark_phase(thread, false);
  state.clock.add_own(thread, (called_ns - begin_ns) + (hook_ns(thread) - returned_ns));
  return result;
}

// The start of an iteration, in which workers start: a wait for data, too.
PyObject* start(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  ProbeState& state = probe_state();
  if (state.clock.shed() >= kShedPhases) return PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  ThreadClock& thread = this_thread_clock();
  const uint64_t begin_ns = clock_of(thread);
  const bool outermost = thread.data_depth == 0 && PyVectorcall_NARGS(nargsf) > 0;
  Fetch about;
  if (outermost) about = describe_start(args[0]);
  about.starts = true;
  state.clock.data_begin(thread, begin_ns, about);
  mark_phase(thread, false);
  PyObject* result = PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  about.iterator = result;
  state.clock.data_end(thread, clock_of(thread), false, about);
  mark_phase(thread, false);
  return result;
}

PyObject* backward(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  const Py_ssize_t size = PyVectorcall_NARGS(nargsf) + (names == nullptr ? 0 : PyTuple_GET_SIZE(names));
  ProbeState& state = probe_state();
  if (state.clock.shed() >= kShedAll || is_traced(args, size)) {
    return PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  }
  ThreadClock& thread = this_thread_clock();
  const uint64_t begin_ns = hook_ns(thread);
  note_activity();
  state.clock.backward_begin(thread, begin_ns);
  mark_phase(thread, false);
  const uint64_t called_ns = hook_ns(thread);
  PyObject* result = PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  const uint64_t returned_ns = ends_steps(thread) ? clock_of(thread) : hook_ns(thread);
  const bool stepped = state.clock.backward_end(thread, returned_ns, result != nullptr);
  mark_phase(thread, stepped);
  state.clock.add_own(thread, (called_ns - begin_ns) + (hook_ns(thread) - returned_ns));
  if (stepped && result != nullptr && !call_on_step()) Py_CLEAR(result);
  return result;
}

PyObject* timed(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  const uint64_t begin_ns = mono_ns();
  PyObject* result = PyObject_Vectorcall(wrapper(self)->original, args, nargsf, names);
  note_call(wrapper(self)->name, mono_ns() - begin_ns);
  return result;
}

PyObject* make(PyTypeObject* type, PyObject* original, PyObject* name, vectorcallfunc call) noexcept {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  wrapper(self)->original = Py_NewRef(original);
  wrapper(self)->name = name == nullptr ? nullptr : Py_NewRef(name);
  wrapper(self)->vectorcall = call;
  return self;
}

template <vectorcallfunc call>
PyObject* make_hook(PyTypeObject* type, PyObject* args, PyObject*) noexcept {
  PyObject* original;
  return PyArg_ParseTuple(args, "O", &original) ? make(type, original, nullptr, call) : nullptr;
}

PyObject* make_timer(PyTypeObject* type, PyObject* args, PyObject*) noexcept {
  PyObject *original, *name;
  return PyArg_ParseTuple(args, "OU", &original, &name) ? make(type, original, name, timed) : nullptr;
}

// As a function does: bound to the instance it is looked up on.
PyObject* bind(PyObject* self, PyObject* instance, PyObject*) noexcept {
  return instance == nullptr ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// Whatever is asked (`__name__`, `__doc__`, a signature) is the original's to answer.
PyObject* get(PyObject* self, PyObject* name) noexcept {
  PyObject* own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(wrapper(self)->original, name);
}

PyObject* original_of(PyObject* self, void*) noexcept { return Py_NewRef(wrapper(self)->original); }

PyObject* doc_of(PyObject* self, void*) noexcept { return PyObject_GetAttrString(wrapper(self)->original, "__doc__"); }

PyObject* show(PyObject* self) noexcept { return PyObject_Repr(wrapper(self)->original); }

int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(wrapper(self)->original);
  return 0;
}

int clear(PyObject* self) noexcept {
  Py_CLEAR(wrapper(self)->original);
  Py_CLEAR(wrapper(self)->name);
  return 0;
}

void dealloc(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyGetSetDef g_getset[] = {
    {"__wrapped__", original_of, nullptr, "The callable in whose place this stands.", nullptr},
    {"__doc__", doc_of, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef g_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

bool add_type(PyObject* module, const char* name, newfunc make_new) noexcept {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(make_new)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
      {Py_tp_getattro, reinterpret_cast<void*>(get)},
      {Py_tp_repr, reinterpret_cast<void*>(show)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_getset, g_getset},
      {Py_tp_members, g_members},
      {0, nullptr},
  };
  const unsigned flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  const std::string full = std::string("pymon.native._probe.") + name;
  PyType_Spec spec = {full.c_str(), sizeof(Wrapper), 0, flags, slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  if (PyModule_AddObject(module, name, type) != 0) {
    Py_DECREF(type);
    return false;
  }
  return true;
}

}  // namespace

bool add_wrapper_types(PyObject* module) noexcept {
  return add_type(module, "DataFetch", make_hook<fetch>) && add_type(module, "LoaderStart", make_hook<start>) &&
         add_type(module, "BackwardPass", make_hook<backward>) &&
         add_type(module, "CallTimer", make_timer);
}

}  // namespace pymon
