// Bursts of hardware counters, for the process that makes one (pymon/probe/counters_child.py).
#pragma once

#include <pybind11/pybind11.h>

namespace pymon {

void bind_counters(pybind11::module_& module);

}  // namespace pymon
