#include "bind/probe_optimizers.h"

#include "core/step_clock.h"

namespace pymon {
namespace {

// An address alone is not an identity: it is used again after garbage collection.
struct Slot {
  PyObject* optimizer = nullptr;  // borrowed; means something only while `reference` is alive
  PyObject* reference = nullptr;
};
Slot g_slots[kOptimizerSlots];

bool alive(const Slot& slot) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* target = nullptr;
  const bool lives = PyWeakref_GetRef(slot.reference, &target) == 1;
  Py_XDECREF(target);
  return lives;
#else
  return PyWeakref_GetObject(slot.reference) != Py_None;
#endif
}

}  // namespace

OptimizerSlot optimizer_slot(PyObject* optimizer) noexcept {
  uint32_t free_slot = kNoSlot;
  for (uint32_t i = 0; i < kOptimizerSlots; ++i) {
    Slot& slot = g_slots[i];
    if (slot.reference == nullptr) {
      if (free_slot == kNoSlot) free_slot = i;
      continue;
    }
    if (slot.optimizer == optimizer) {
      if (alive(slot)) return {i, false};
      free_slot = i;  // another object at the same address
    } else if (free_slot == kNoSlot && !alive(slot)) {
      free_slot = i;
    }
  }
  if (free_slot == kNoSlot) return {kNoSlot, false};
  PyObject* reference = PyWeakref_NewRef(optimizer, nullptr);
  if (reference == nullptr) {
    PyErr_Clear();
    return {kNoSlot, false};
  }
  Slot& slot = g_slots[free_slot];
  Py_XDECREF(slot.reference);
  slot = Slot{optimizer, reference};
  return {free_slot, true};
}

void forget_optimizers_in_child() noexcept {
  for (Slot& slot : g_slots) slot = Slot{};
}

}  // namespace pymon
