#include "bind/probe_optimizers.h"

#include "core/step_clock.h"

namespace pymon {
namespace {

// An address alone is not an identity: it is used again after garbage collection.
struct Slot {
  PyObject* optimizer = nullptr;  // borrowed; means something only while `reference` is alive
  PyObject* reference = nullptr;
  uint64_t last_call = 0;
};
Slot g_slots[kOptimizerSlots];
uint64_t g_calls = 0;

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

uint32_t optimizer_slot(PyObject* optimizer) noexcept {
  uint32_t free_slot = kNoSlot, oldest = 0;
  ++g_calls;
  for (uint32_t i = 0; i < kOptimizerSlots; ++i) {
    Slot& slot = g_slots[i];
    if (slot.reference == nullptr) {
      if (free_slot == kNoSlot) free_slot = i;
      continue;
    }
    if (slot.optimizer == optimizer) {
      if (alive(slot)) {
        slot.last_call = g_calls;
        return i;
      }
      free_slot = i;  // another object at the same address
    } else if (free_slot == kNoSlot && !alive(slot)) {
      free_slot = i;
    }
    if (slot.last_call < g_slots[oldest].last_call) oldest = i;
  }
  if (free_slot == kNoSlot) free_slot = oldest;
  PyObject* reference = PyWeakref_NewRef(optimizer, nullptr);
  if (reference == nullptr) {
    PyErr_Clear();
    return kNoSlot;
  }
  Slot& slot = g_slots[free_slot];
  Py_XDECREF(slot.reference);
  slot = Slot{optimizer, reference, g_calls};
  return free_slot;
}

void forget_optimizers_in_child() noexcept {
  for (Slot& slot : g_slots) slot = Slot{};
}

}  // namespace pymon
