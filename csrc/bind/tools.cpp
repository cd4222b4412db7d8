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
using pymon::TrainBody;

template <typename T>
py::bytes bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
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
      .def("header", [](const PageReader& self) { return bytes_of(self.header()); })
      .def("train",
           [](const PageReader& self) -> py::object {
             TrainBody body;
             if (!self.train(&body)) return py::none();
             return bytes_of(body);
           })
      .def(
          "steps_after",
          [](const PageReader& self, uint64_t step) {
            std::vector<RingEntry> entries;
            const uint64_t lost = self.steps_after(step, &entries);
            py::bytes raw(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(RingEntry));
            return py::make_tuple(raw, lost);
          },
          py::arg("step"));
}

}  // namespace

PYBIND11_MODULE(_tools, module) {
  module.doc() = "Page reader and trace engine.";
  bind_page(module);
  bind_trace(module);
}
