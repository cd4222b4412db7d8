// The section of memory, as Python fills it.
#pragma once

#include <pybind11/pybind11.h>

#include "core/page_writer.h"

namespace pymon {

void bind_memory(pybind11::module_& module);
void publish_memory_to(PageWriter* page) noexcept;  // null: a fork's child starts from nothing

}  // namespace pymon
