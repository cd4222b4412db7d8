// pymon.native._probe: the hooks and the page of a training process.
//
// The hooks that torch calls each step are C builtins: torch.compile skips a builtin, but traces a Python function and
// compiles the step again whenever something it touched has changed. No C++ exception crosses from a hook into Python,
// and no hook fails: a hook that returned NULL would raise in the user's `optimizer.step()`.
#include <pthread.h>
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

#include "bind/probe_call_sites.h"
#include "bind/probe_collectives.h"
#include "bind/probe_counters.h"
#include "bind/probe_events.h"
#include "bind/probe_gpu.h"
#include "bind/probe_loaders.h"
#include "bind/probe_memory.h"
#include "bind/probe_optimizers.h"
#include "bind/probe_state.h"
#include "bind/probe_wrapper.h"
#include "core/clock.h"
#include "core/process_start.h"

namespace py = pybind11;

namespace {

using pymon::PageWriter;
using pymon::probe_state;
using pymon::this_thread_clock;

bool is_off() noexcept { return probe_state().clock.shed() >= pymon::kShedAll; }

PyObject* optimizer_pre(PyObject*, PyObject* const*, Py_ssize_t) noexcept {
  if (is_off()) Py_RETURN_NONE;
  pymon::ThreadClock& thread = this_thread_clock();
  const uint64_t now_ns = pymon::clock_of(thread);
  probe_state().clock.optimizer_begin(thread, now_ns);
  pymon::mark_phase(thread, false);
  probe_state().clock.prefetch();
  probe_state().clock.add_own(thread, pymon::clock_of(thread) - now_ns);
  Py_RETURN_NONE;
}

PyObject* optimizer_post(PyObject*, PyObject* const* args, Py_ssize_t size) noexcept {
  if (is_off()) Py_RETURN_NONE;
  pymon::ThreadClock& thread = this_thread_clock();
  const uint64_t now_ns = pymon::clock_of(thread);
  pymon::note_activity();
  const uint32_t slot = size > 0 ? pymon::optimizer_slot(args[0]) : pymon::kNoSlot;
  const bool stepped = probe_state().clock.optimizer_end(thread, now_ns, slot);
  pymon::mark_phase(thread, stepped);
  probe_state().clock.add_own(thread, pymon::clock_of(thread) - now_ns);
  if (stepped && !pymon::call_on_step()) return nullptr;  // an interrupt of the user's, on its way up
  Py_RETURN_NONE;
}

PyObject* explicit_step(PyObject*, PyObject* const*, Py_ssize_t) noexcept {
  if (is_off()) Py_RETURN_NONE;
  pymon::ThreadClock& thread = this_thread_clock();
  const uint64_t now_ns = pymon::clock_of(thread);
  pymon::note_activity();
  const bool stepped = probe_state().clock.explicit_step(thread, now_ns);
  pymon::mark_phase(thread, stepped);
  probe_state().clock.add_own(thread, pymon::clock_of(thread) - now_ns);
  if (stepped && !pymon::call_on_step()) return nullptr;
  Py_RETURN_NONE;
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t) noexcept>
PyCFunction fast() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_hooks[] = {
    {"optimizer_pre", fast<optimizer_pre>(), METH_FASTCALL, "Global optimizer step pre-hook."},
    {"optimizer_post", fast<optimizer_post>(), METH_FASTCALL, "Global optimizer step post-hook."},
    {"step", fast<explicit_step>(), METH_FASTCALL, "A step ends here: pymon.step()."},
    {nullptr, nullptr, 0, nullptr},
};

// Replaces a callback; None clears it.
void set_callback(PyObject*& slot, const py::object& callback) {
  PyObject* old = slot;
  slot = callback.is_none() ? nullptr : py::object(callback).release().ptr();
  Py_XDECREF(old);
}

int open_page(const py::bytes& attach_id) {
  const std::string_view id(attach_id);
  if (id.size() != 16) throw py::value_error("attach_id is 16 bytes");
  if (probe_state().page != nullptr) throw py::value_error("the page is open already");
  auto made = PageWriter::create(reinterpret_cast<const uint8_t*>(id.data()));
  if (!made.ok()) throw py::value_error(made.error().text);
  probe_state().page = made.value();
  probe_state().clock.run().process_start_mono_ns = pymon::process_start_mono_ns();
  probe_state().clock.publish_to(made.value());
  pymon::event_log().publish_to(made.value());
  pymon::publish_collectives_to(made.value());
  pymon::publish_memory_to(made.value());
  return made.value()->fd();
}

// What Python tells of the run beside its steps; all of it is rare. Nothing while the probe is off.
void bind_run(py::module_& module) {
  using pymon::StepClock;
  using pymon::ThreadClock;
  const auto def = [&module](const char* name, auto tell) {
    module.def(name, [tell](uint64_t value) {
      if (!is_off()) tell(probe_state().clock, this_thread_clock(), value);
    }, py::arg("value") = 0);
  };
  def("save_begin", [](StepClock& clock, ThreadClock& thread, uint64_t) { clock.save_begin(thread, pymon::clock_of(thread)); });
  def("save_end", [](StepClock& clock, ThreadClock& thread, uint64_t outcome) {
    clock.save_end(thread, pymon::clock_of(thread), static_cast<pymon::SaveOutcome>(outcome), pymon::real_ns());
  });
  def("evaluation_begin", [](StepClock& clock, ThreadClock& thread, uint64_t) {
    clock.evaluation_begin(thread, pymon::clock_of(thread));
  });
  def("evaluation_end", [](StepClock& clock, ThreadClock& thread, uint64_t) {
    clock.evaluation_end(thread, pymon::clock_of(thread));
  });
  def("give_samples", [](StepClock& clock, ThreadClock& thread, uint64_t samples) { clock.give_samples(thread, samples); });
  def("give_tokens", [](StepClock& clock, ThreadClock& thread, uint64_t tokens) { clock.give_tokens(thread, tokens); });
  module.def("set_flops", [](uint64_t per_sample, uint64_t per_token) {
    probe_state().clock.run().flops_per_sample = per_sample;
    probe_state().clock.run().flops_per_token = per_token;
  }, py::arg("per_sample"), py::arg("per_token"), "0: not given.");
  module.def("set_restarts", [](uint64_t restarts) { probe_state().clock.run().restarts_plus_1 = restarts + 1; });
  module.def("set_loader_questions", &pymon::set_loader_questions, py::arg("grad_enabled"), py::arg("sharing_strategy"));
}

}  // namespace

PYBIND11_MODULE(_probe, module) {
  module.doc() = "Hooks and page of a training process.";
  if (PyModule_AddFunctions(module.ptr(), g_hooks) != 0 || !pymon::add_wrapper_types(module.ptr())) {
    throw py::error_already_set();
  }
  pthread_atfork(nullptr, nullptr, [] { pymon::forget_in_child(); });

  pymon::bind_counters(module);
  pymon::bind_gpu(module);
  pymon::bind_events(module);
  pymon::bind_collectives(module);
  pymon::bind_memory(module);
  module.def("open_page", &open_page, py::arg("attach_id"), "Makes the page; gives its memfd, which stays ours.");
  module.def("set_activity_callback", [](const py::object& call) { set_callback(probe_state().on_activity, call); });
  module.def("set_step_callback", [](const py::object& call) { set_callback(probe_state().on_step, call); });
  module.def("set_shed", [](uint64_t shed, uint64_t sheds_total, uint64_t overhead_ppm) {
    probe_state().clock.set_shed(shed, sheds_total, overhead_ppm);
  }, py::arg("shed"), py::arg("sheds_total"), py::arg("overhead_ppm"), "What the probe leaves away: enum Shed.");
  module.def("costs", [] {
    const pymon::TrainBody& body = probe_state().clock.body();
    return py::make_tuple(body.own_ns_total, body.step_ns_total, body.steps_total);
  }, "Nanoseconds in hooks, nanoseconds of finished steps, and how many these are.");
  module.def("set_second_callback", [](const py::object& call) { set_callback(probe_state().on_second, call); });
  module.def("set_capturing", [](bool on) { probe_state().clock.set_capturing(on); });
  module.def("phase_slot", [](std::string_view name) { return probe_state().clock.phase_slot(name.data(), name.size()); });
  module.def("add_phase", [](uint32_t slot, uint64_t duration_ns) {
    probe_state().clock.phase(this_thread_clock(), slot, duration_ns);
  });
  module.def("pause", [] { probe_state().clock.pause(this_thread_clock()); }, "Nothing goes on until the next event.");
  bind_run(module);
  module.def("publish", [] { probe_state().clock.publish(); }, "Shows what was counted since the last step, too.");
  module.def("set_torch_state", &pymon::set_torch_state, py::arg("graph_task"), py::arg("tracing_mode"),
             py::arg("tensor_type"),
             "Tell threads of the autograd engine from the user's, and passes that are only traced from real ones.");
  module.def("steps_total", [] { return probe_state().clock.steps_total(); });
  module.def("set_library_folder",
             [](std::string_view folder) { pymon::set_library_folder(folder.data(), folder.size()); });
  module.def("call_sites", [] { return py::reinterpret_steal<py::list>(pymon::call_sites()); });
  module.def("clear_call_sites", &pymon::clear_call_sites);
}
