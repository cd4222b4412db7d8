#include "bind/probe_gpu.h"

#include <cstring>
#include <string>

#include "bind/probe_state.h"
#include "gpu/gpu_core.h"
#include "gpu/kernel_class.h"
#include "gpu/library.h"

namespace py = pybind11;

namespace pymon {

bool g_marks_gpu = false;

namespace {

// torch._C._cuda_getDevice and _cuda_getCurrentRawStream: together a quarter of a microsecond, where
// torch.cuda.current_stream() takes several.
PyObject* g_device = nullptr;
PyObject* g_raw_stream = nullptr;

int g_last_device = -1;  // of the marks

bool current_stream(cuda::Stream* stream) noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // an exception of the user's may be on its way
  PyObject* device = PyObject_CallNoArgs(g_device);
  PyObject* raw = device == nullptr ? nullptr : PyObject_CallOneArg(g_raw_stream, device);
  const bool known = raw != nullptr && PyLong_Check(raw);
  if (known) *stream = PyLong_AsVoidPtr(raw);
  if (known && PyLong_Check(device)) g_last_device = static_cast<int>(PyLong_AsLong(device));
  Py_XDECREF(raw);
  Py_XDECREF(device);
  PyErr_Restore(type, value, trace);  // drops what the two calls may have raised
  return known;
}

// Runs `call` without the GIL. Not py::gil_scoped_release: at the interpreter's end Python ends a thread that asks for the
// GIL again by unwinding it, and a destructor that is unwound through aborts the process.
template <typename Call>
auto without_gil(Call call) {
  PyThreadState* state = PyEval_SaveThread();
  const auto answer = call();
  PyEval_RestoreThread(state);
  return answer;
}

// A reason outlives the call that gives it: the layers keep the pointer.
const char* kept(const std::string& reason) { return strdup(reason.c_str()); }

void start(const py::object& device, const py::object& raw_stream, const std::string& why_no_events,
           const std::string& why_no_cupti, bool synchronisations) {
  if (g_device != nullptr) return;
  g_device = py::object(device).release().ptr();
  g_raw_stream = py::object(raw_stream).release().ptr();
  GpuOptions options;
  options.why_no_events = why_no_events;
  options.why_no_cupti = why_no_cupti.empty() ? other_tool() : why_no_cupti;
  options.cupti.expects_kineto = expects_kineto();
  options.cupti.synchronisations = synchronisations;
  PageWriter* page = probe_state().page;
  // It takes the loader's lock, under which another thread may wait for the GIL.
  without_gil([&] { return GpuCore::instance().start(page, options), true; });
  // Without the two functions there are no marks: CUPTI then cannot tell a thief by the steps that go by.
  const bool any = why_no_events.empty() || why_no_cupti.empty();
  g_marks_gpu = any && !device.is_none() && !raw_stream.is_none();
}

py::tuple layer(const GpuCore::Layer& layer) {
  constexpr const char* kStates[] = {"off", "running", "yielded", "absent", "disarmed"};
  return py::make_tuple(kStates[layer.state], layer.reason);
}

}  // namespace

void mark_gpu(uint32_t ended, bool stepped) noexcept {
  cuda::Stream stream = nullptr;
  if (!current_stream(&stream)) {
    g_marks_gpu = false;
    GpuCore::instance().stop_events("torch does not tell its current stream", 0);
    return;
  }
  GpuCore::instance().mark(stream, static_cast<Phase>(ended), stepped ? probe_state().clock.steps_total() : 0);
}

void leave_gpu_gap() noexcept { GpuCore::instance().leave_gap(); }

void bind_gpu(py::module_& module) {
  module.def("gpu_start", &start, py::arg("device"), py::arg("raw_stream"), py::arg("why_no_events"),
             py::arg("why_no_cupti"), py::arg("synchronisations"),
             "Starts the layers that nothing speaks against, once, when CUDA is up; the page says what became of them.");
  module.def("gpu_yield", [](uint32_t timeout_ms, const std::string& reason) {
    const char* words = reason.empty() ? nullptr : kept(reason);
    return without_gil([=] { return GpuCore::instance().yield(timeout_ms, words); });
  }, py::arg("timeout_ms"), py::arg("reason") = "", "Gives CUPTI to another client; False where that took too long.");
  module.def("gpu_leave_gap", &leave_gpu_gap, "The marks before the next one were left out.");
  module.def("gpu_resume", [] { GpuCore::instance().resume(); }, "Takes it back.");
  module.def("gpu_stop", [](const std::string& reason, uint32_t timeout_ms) {
    const char* words = kept(reason);
    without_gil([=] { return GpuCore::instance().stop(words, timeout_ms), true; });
  }, py::arg("reason"), py::arg("timeout_ms"));
  module.def("gpu_leave_cupti", [](const std::string& reason) { GpuCore::instance().leave_cupti(kept(reason)); },
             py::arg("reason"), "Off for good, for a client that has taken CUPTI already: it is not touched any more.");
  module.def("gpu_note_reserved", [](uint64_t bytes) { GpuCore::instance().note_reserved(bytes); }, py::arg("bytes"));
  module.def("gpu_device", [] { return g_last_device; }, "Of the training thread; -1 before its first mark.");
  module.def("gpu_layers", [] {
    py::dict layers;
    layers["events"] = layer(GpuCore::instance().events());
    layers["cupti"] = layer(GpuCore::instance().cupti());
    return layers;
  });
  module.def("gpu_why_not", [] {
    return py::make_tuple(GpuCore::why_no_events(), GpuCore::why_no_cupti());
  }, "What would keep each layer off here: events, CUPTI; empty where nothing would.");
  module.def("gpu_kernel_class", [](const std::string& name) { return static_cast<unsigned>(kernel_class(name.c_str())); },
             py::arg("name"), "The class of work of a kernel of this name, by its number in the page.");
}

void forget_gpu_in_child() noexcept {
  g_marks_gpu = false;
  g_device = g_raw_stream = nullptr;  // leaked, like all that is the parent's
  GpuCore::forget_in_child();
}

}  // namespace pymon
