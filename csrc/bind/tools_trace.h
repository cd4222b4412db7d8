// The trace engine, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

void bind_trace(pybind11::module_& module);
