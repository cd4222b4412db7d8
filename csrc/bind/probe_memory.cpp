#include "bind/probe_memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bind/probe_state.h"
#include "core/clock.h"

namespace py = pybind11;

namespace pymon {
namespace {

MemoryBody g_body{};
PageWriter* g_page = nullptr;

void publish() noexcept {
  if (g_page != nullptr) g_page->publish_memory(g_body);
}

AllocatorState* state_of(uint64_t device) noexcept {
  AllocatorState* end = g_body.allocator + g_body.devices;
  AllocatorState* found = std::find_if(g_body.allocator, end, [device](const auto& one) { return one.device == device; });
  if (found != end || g_body.devices == kAllocatorDevices) return found == end ? nullptr : found;
  ++g_body.devices;
  found->device = device;
  return found;
}

// The place of `name` among the page's values; `size` where this layout has none such.
template <size_t size>
size_t index_of(const char* const (&names)[size], const std::string& name) {
  return static_cast<size_t>(std::find(names, names + size, name) - names);
}

// `values` by kAllocatorValueNames; what is not in it is not told.
void note_allocator(uint64_t device, const std::string& uuid, const py::dict& values) {
  AllocatorState told{};
  for (const auto& [name, value] : values) {
    const size_t which = index_of(kAllocatorValueNames, name.cast<std::string>());
    if (which == kAllocatorValuesUsed) continue;
    told.value[which] = value.cast<uint64_t>();
    told.told |= uint64_t{1} << which;
  }
  AllocatorState* state = state_of(device);  // only now: what cannot be cast leaves no trace
  if (state == nullptr) return;
  told.device = device;
  told.step = probe_state().clock.steps_total();
  told.read_mono_ns = mono_ns();
  std::strncpy(told.uuid, uuid.c_str(), sizeof told.uuid - 1);
  *state = told;
  publish();
}

// `values` by kHostValueNames, those that were looked at; None is what could not be read.
void note_host(const py::dict& values) {
  const uint64_t now_ns = mono_ns();
  for (const auto& [name, value] : values) {
    const size_t which = index_of(kHostValueNames, name.cast<std::string>());
    if (which == kHostValuesUsed) continue;
    g_body.host[which] = value.is_none() ? 0 : value.cast<uint64_t>();
    g_body.host_read_mono_ns[which] = value.is_none() ? 0 : now_ns;
  }
  publish();
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("note_allocator", &note_allocator, py::arg("device"), py::arg("uuid"), py::arg("values"));
  module.def("note_host", &note_host, py::arg("values"));
}

void publish_memory_to(PageWriter* page) noexcept {
  if (page == nullptr) g_body = MemoryBody{};
  g_page = page;
  publish();
}

}  // namespace pymon
