// A callable in place of one of torch's own, which forwards everything and notes the time around it.
#pragma once

#include <Python.h>

namespace pymon {

// Adds the types `DataFetch(original)`, `BackwardPass(original)` and `CallTimer(original, name)` to the module.
// False with a Python error set where that fails.
bool add_wrapper_types(PyObject* module) noexcept;

}  // namespace pymon
