// pymon.native._tools: what the daemon and the commands use. Nothing of it loads into a training process.
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "bind/tools_trace.h"
#include "core/page_reader.h"

namespace py = pybind11;

namespace {

using pymon::Header;
using pymon::PageReader;
using pymon::RingEntry;

template <typename T>
py::bytes bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
py::bytes bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <size_t size>
py::tuple names_of(const char* const (&names)[size]) {
  py::tuple found(size);
  for (size_t i = 0; i < size; ++i) found[i] = names[i];
  return found;
}

// A whole state of one section, or None.
template <typename Body, bool (PageReader::*read)(Body*) const noexcept>
py::object section(const PageReader& self) {
  Body body;
  if (!(self.*read)(&body)) return py::none();
  return bytes_of(body);
}

template <typename Entry, void (PageReader::*read)(uint64_t, std::vector<Entry>*) const>
py::bytes entries_after(const PageReader& self, uint64_t number) {
  std::vector<Entry> entries;
  (self.*read)(number, &entries);
  return bytes_of(entries);
}

std::unique_ptr<PageReader> open_page(int fd) {
  auto opened = PageReader::open(fd);
  if (!opened.ok()) throw py::value_error(opened.error().text);
  return std::move(opened.value());
}

// The GIL is kept: a call takes microseconds, and the page cannot be let go of under it.
// Whole states leave as bytes: pymon/link/layout.py gives the fields their names, for this reader and its twin alike.
void bind_page(py::module_& module) {
  py::class_<PageReader>(module, "PageReader")
      .def(py::init(&open_page), py::arg("fd"))
      .def("copy",
           [](const PageReader& self) {
             std::vector<uint64_t> words;
             self.copy(&words);
             return bytes_of(words);
           })
      .def("header", [](const PageReader& self) { return bytes_of(self.header()); })
      .def("train", &section<pymon::TrainBody, &PageReader::train>)
      .def("gpu", &section<pymon::GpuBody, &PageReader::gpu>)
      .def("cupti", &section<pymon::CuptiBody, &PageReader::cupti>)
      .def("run", &section<pymon::RunBody, &PageReader::run>)
      .def("events", &section<pymon::EventsBody, &PageReader::events>)
      .def("collectives", &section<pymon::CollectivesBody, &PageReader::collectives>)
      .def("memory", &section<pymon::MemoryBody, &PageReader::memory>)
      .def("recorder", &section<pymon::RecorderBody, &PageReader::recorder>)
      .def("gpu_steps_after", &entries_after<pymon::GpuRingEntry, &PageReader::gpu_steps_after>, py::arg("step"))
      .def("events_after", &entries_after<pymon::EventEntry, &PageReader::events_after>, py::arg("number"))
      .def(
          "steps_after",
          [](const PageReader& self, uint64_t step) {
            std::vector<RingEntry> entries;
            const uint64_t lost = self.steps_after(step, &entries);
            return py::make_tuple(bytes_of(entries), lost);
          },
          py::arg("step"));
}

}  // namespace

PYBIND11_MODULE(_tools, module) {
  module.doc() = "Page reader and trace engine.";
  bind_page(module);
  module.def("work_class_names", [] { return names_of(pymon::kWorkClassNames); });
  module.def("event_kind_names", [] { return names_of(pymon::kEventKindNames); });
  module.def("allocator_value_names", [] { return names_of(pymon::kAllocatorValueNames); });
  module.def("host_value_names", [] { return names_of(pymon::kHostValueNames); });
  bind_trace(module);
}
