#include "bind/tools_trace.h"

#include <string>
#include <string_view>

#include "trace/reader.h"
#include "trace/sums.h"

namespace py = pybind11;
using namespace pymon::trace;

namespace {

py::str text(std::string_view bytes) {
  PyObject* made = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

template <typename T>
py::object or_none(bool has, const T& value) {
  return has ? py::cast(value) : py::object(py::none());
}

py::list named(const Names& names, const std::vector<Named>& sums) {
  py::list out;
  for (const Named& sum : sums) out.append(py::make_tuple(text(names.at(sum.name)), sum.calls_total, sum.ns));
  return out;
}

py::dict gpu_dict(const GpuSums& sums) {
  py::dict out;
  out["busy_ns"] = sums.busy_ns;
  out["compute_ns"] = sums.compute_ns;
  out["comm_ns"] = sums.comm_ns;
  out["copy_ns"] = sums.copy_ns;
  out["exposed_comm_ns"] = sums.exposed_comm_ns;
  out["exposed_copy_ns"] = sums.exposed_copy_ns;
  out["idle_ns"] = sums.idle_ns;
  out["idle_by_data_ns"] = sums.idle_by_data_ns;
  out["idle_by_gpu_ns"] = sums.idle_by_gpu_ns;
  out["idle_by_sync_ns"] = sums.idle_by_sync_ns;
  out["idle_by_allocator_ns"] = sums.idle_by_allocator_ns;
  out["idle_by_host_ns"] = sums.idle_by_host_ns;
  out["sync_recoverable_ns"] = sums.sync_recoverable_ns;
  out["launch_to_start_p50_ns"] = or_none(sums.launch_to_start_p50_ns >= 0, sums.launch_to_start_p50_ns);
  out["kernel_p50_ns"] = or_none(sums.kernel_p50_ns >= 0, sums.kernel_p50_ns);
  out["kernels_total"] = sums.kernels_total;
  out["h2d_pageable_bytes"] = sums.h2d_pageable_bytes;
  out["h2d_pageable_api_ns"] = sums.h2d_pageable_api_ns;
  return out;
}

py::dict about_dict(const Reader& reader) {
  const About& about = reader.about();
  py::dict out;
  out["rank"] = or_none(about.has_rank, about.rank);
  out["world_size"] = or_none(about.has_world_size, about.world_size);
  out["base_time_ns"] = or_none(about.has_base_time, about.base_time_ns);
  out["trace_name"] = text(about.trace_name);
  out["host_name"] = text(about.host_name);
  out["gpu_name"] = text(about.gpu_name);
  out["array_root"] = about.array_root;
  return out;
}

py::dict defects_dict(const Reader& reader) {
  const Defects& defects = reader.defects();
  py::dict out;
  out["unreadable_total"] = defects.unreadable_total;
  out["unreadable_bytes"] = defects.unreadable_bytes;
  out["bad_values_total"] = defects.bad_values_total;
  out["zero_stamps_total"] = defects.zero_stamps_total;
  out["over_limit_total"] = defects.over_limit_total;
  out["cut_names_total"] = defects.cut_names_total;
  out["refused_names_total"] = reader.names().refused_total();
  out["truncated"] = defects.truncated;
  out["no_events_array"] = defects.no_events_array;
  return out;
}

py::dict credibility_dict(const Credibility& credibility) {
  py::dict out;
  out["gpu_without_launch_total"] = credibility.gpu_without_launch_total;
  out["launches_total"] = credibility.launches_total;
  out["launches_without_kernel_total"] = credibility.launches_without_kernel_total;
  out["kernels_before_launch_total"] = credibility.kernels_before_launch_total;
  out["graph_launches_total"] = credibility.graph_launches_total;
  out["graph_launches_empty_total"] = credibility.graph_launches_empty_total;
  out["overhead_ns"] = credibility.overhead_ns;
  return out;
}

const char* source_name(WindowSource source) {
  switch (source) {
    case WindowSource::kProfilerSteps: return "profiler_steps";
    case WindowSource::kGiven: return "capture";
    case WindowSource::kOptimizerSteps: return "optimizer_steps";
    case WindowSource::kWholeTrace: return "whole_trace";
    case WindowSource::kNone: break;
  }
  return "none";
}

py::dict facts_dict(const Reader& reader, const Sums& sums) {
  const Names& names = reader.names();
  py::dict out;
  out["about"] = about_dict(reader);
  out["defects"] = defects_dict(reader);
  out["credibility"] = credibility_dict(sums.credibility);
  out["events_total"] = reader.events_total();
  out["bytes_total"] = reader.bytes_total();
  out["window_source"] = source_name(sums.source);
  out["window_ns"] = sums.window_ns;
  out["steps_total"] = sums.steps_total;
  out["step_ns"] = [&] {
    py::list steps;
    for (int64_t ns : sums.step_ns) steps.append(ns);
    return steps;
  }();
  out["ops_total"] = sums.ops_total;
  out["host_events_total"] = sums.host_events_total;
  out["gpu_events_total"] = sums.gpu_events_total;
  out["gpu"] = sums.gpu ? py::object(gpu_dict(*sums.gpu)) : py::object(py::none());
  py::dict loader;
  loader["calls_total"] = sums.loader.calls_total;
  loader["single_total"] = sums.loader.single_total;
  loader["multi_total"] = sums.loader.multi_total;
  loader["wait_ns"] = sums.loader.wait_ns;
  loader["longest_ns"] = sums.loader.longest_ns;
  out["loader"] = loader;
  py::dict reads;
  reads["calls_total"] = sums.reads.calls_total;
  reads["with_copy_total"] = sums.reads.with_copy_total;
  reads["ns"] = sums.reads.ns;
  out["reads"] = reads;
  out["blocked_ns"] = sums.blocked_ns;
  out["waited_ns"] = sums.waited_ns;
  out["blocking"] = named(names, sums.blocking);
  out["op_ns"] = sums.op_ns;
  out["top_ops"] = named(names, sums.top_ops);
  out["top_kernels"] = named(names, sums.top_kernels);
  py::list sites;
  for (const Site& site : sums.sites) {
    sites.append(py::make_tuple(text(names.at(site.frame)), text(names.at(site.call)), site.is_frame, site.calls_total,
                                site.ns));
  }
  out["sites"] = sites;
  return out;
}

}  // namespace

void bind_trace(py::module_& module) {
  py::class_<Reader>(module, "TraceReader", "Reads a Kineto trace piece by piece; see csrc/trace/reader.h.")
      .def(py::init([](size_t max_events, size_t max_event_bytes, size_t max_names_bytes) {
             Limits limits;
             if (max_events > 0) limits.max_events = max_events;
             if (max_event_bytes > 0) limits.max_event_bytes = max_event_bytes;
             if (max_names_bytes > 0) limits.max_names_bytes = max_names_bytes;
             return Reader(limits);
           }),
           py::kw_only(), py::arg("max_events") = 0, py::arg("max_event_bytes") = 0, py::arg("max_names_bytes") = 0)
      .def("feed",
           [](Reader& self, const py::bytes& bytes) {
             const std::string_view view = bytes;
             py::gil_scoped_release unlocked;
             self.feed(view.data(), view.size());
           })
      .def("finish", &Reader::finish, py::call_guard<py::gil_scoped_release>())
      .def(
          "facts",
          [](const Reader& self, uint64_t given_steps) {
            Sums sums;
            {
              py::gil_scoped_release unlocked;
              sums = sum_up(self, given_steps);
            }
            return facts_dict(self, sums);
          },
          py::kw_only(), py::arg("given_steps") = 0);
}
