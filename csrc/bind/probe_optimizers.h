// Which optimizer is which: a slot for each that lives, found again without keeping it alive.
#pragma once

#include <Python.h>

#include <cstdint>

namespace pymon {

struct OptimizerSlot {
  uint32_t number;  // kNoSlot where all are taken by living ones, or it cannot be referenced weakly
  bool first_call;  // the slot was given just now
};
OptimizerSlot optimizer_slot(PyObject* optimizer) noexcept;

void forget_optimizers_in_child() noexcept;

}  // namespace pymon
