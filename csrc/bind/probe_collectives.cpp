#include "bind/probe_collectives.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/group_name.h"
#include "trace/flight_recorder.h"

namespace py = pybind11;

namespace pymon {
namespace {

CollectivesBody g_body{};
PageWriter* g_page = nullptr;

// What is read of torch's Flight Recorder; one thread at a time reads.
struct Recorders {
  RecorderBody body{};
  trace::FlightRecorder gloo{&body}, nccl{&body};
};
Recorders* g_recorders = nullptr;  // a fork's child leaves its parent's: a thread may have been at it

Recorders& recorders() {
  if (g_recorders == nullptr) g_recorders = new Recorders;
  return *g_recorders;
}

// False where the text is no dump. The text is read where it lies, without the GIL; the page is left as it is.
bool read_recorder(std::string_view source, const py::str& dump) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(dump.ptr(), &size);
  if (text == nullptr) throw py::error_already_set();
  Recorders& all = recorders();
  py::gil_scoped_release others;
  return (source == "nccl" ? all.nccl : all.gloo).read({text, static_cast<size_t>(size)});
}

void publish_recorder(uint64_t cpu_ns, uint64_t now_mono_ns) {
  RecorderBody& body = recorders().body;
  ++body.reads_total;
  body.read_cpu_ns_total += cpu_ns;
  body.last_read_mono_ns = now_mono_ns;
  if (g_page != nullptr) g_page->publish_recorder(body);
}

void set_recorder_reason(std::string_view reason) {
  RecorderBody& body = recorders().body;
  std::memset(body.reason, 0, sizeof body.reason);
  std::memcpy(body.reason, reason.data(), std::min(reason.size(), sizeof body.reason - 1));
  if (g_page != nullptr) g_page->publish_recorder(body);
}

void publish() noexcept {
  if (g_page != nullptr) g_page->publish_collectives(g_body);
}

void note_group(uint32_t slot, std::string_view name, uint64_t size, uint64_t rank, uint64_t sequence,
                uint64_t now_ns) {
  if (slot >= kCollectiveGroups) return;
  GroupState& group = g_body.group[slot];
  char padded[kGroupNameBytes];
  put_group_name(name, padded);
  const bool same = std::memcmp(group.name, padded, sizeof padded) == 0 && group.sequence == sequence;
  std::memcpy(group.name, padded, sizeof padded);
  group.size = size;
  group.rank = rank;
  group.sequence = sequence;
  if (!same || group.changed_mono_ns == 0) group.changed_mono_ns = now_ns;
}

void note_ddp(uint64_t iteration, uint64_t begin_real_ns, uint64_t comm_ns, uint64_t overlap_ns, uint64_t bytes) {
  ++g_body.ddp_samples_total;
  g_body.ddp_comm_ns_total += comm_ns;
  g_body.ddp_overlap_ns_total += overlap_ns;
  g_body.ddp_last_iteration = iteration;
  g_body.ddp_last_begin_real_ns = begin_real_ns;
  g_body.ddp_last_comm_ns = comm_ns;
  g_body.ddp_bytes = bytes;
  publish();
}

}  // namespace

void bind_collectives(py::module_& module) {
  module.def("note_group", &note_group, py::arg("slot"), py::arg("name"), py::arg("size"), py::arg("rank"),
             py::arg("sequence"), py::arg("now_mono_ns"));
  module.def("publish_groups", [](uint64_t groups) {
    g_body.groups = groups;
    publish();
  }, py::arg("groups"));
  module.def("note_ddp", &note_ddp, py::arg("iteration"), py::arg("begin_real_ns"), py::arg("comm_ns"),
             py::arg("overlap_ns"), py::arg("bytes"));
  module.def("read_recorder", &read_recorder, py::arg("source"), py::arg("dump"));
  module.def("publish_recorder", &publish_recorder, py::arg("cpu_ns"), py::arg("now_mono_ns"));
  module.def("set_recorder_reason", &set_recorder_reason, py::arg("reason"));
}

void publish_collectives_to(PageWriter* page) noexcept {
  if (page == nullptr) {
    g_body = CollectivesBody{};
    g_recorders = nullptr;
  }
  g_page = page;
  publish();
}

}  // namespace pymon
