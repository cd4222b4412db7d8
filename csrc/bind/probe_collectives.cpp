#include "bind/probe_collectives.h"

#include <cstring>
#include <string>

namespace py = pybind11;

namespace pymon {
namespace {

CollectivesBody g_body{};
PageWriter* g_page = nullptr;

void publish() noexcept {
  if (g_page != nullptr) g_page->publish_collectives(g_body);
}

void note_group(uint32_t slot, const std::string& name, uint64_t size, uint64_t rank, uint64_t sequence,
                uint64_t now_ns) {
  if (slot >= kCollectiveGroups) return;
  GroupState& group = g_body.group[slot];
  char padded[kGroupNameBytes] = {};
  std::strncpy(padded, name.c_str(), sizeof padded - 1);
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
}

void publish_collectives_to(PageWriter* page) noexcept {
  if (page == nullptr) g_body = CollectivesBody{};
  g_page = page;
  publish();
}

}  // namespace pymon
