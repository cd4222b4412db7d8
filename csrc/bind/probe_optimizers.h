// Which optimizer is which: a slot for each that lives, found again without keeping it alive.
#pragma once

#include <Python.h>

#include <cstdint>

namespace pymon {

// The optimizer's slot; kNoSlot where it cannot be referenced weakly. Where all are taken by living
// ones, the one that has not stepped for longest gives up its own.
uint32_t optimizer_slot(PyObject* optimizer) noexcept;

void forget_optimizers_in_child() noexcept;

}  // namespace pymon
