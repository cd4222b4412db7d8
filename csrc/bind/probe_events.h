// Events that explain a slow step, as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

#include "core/event_log.h"

namespace pymon {

EventLog& event_log() noexcept;

// Adds `gc_event` (for gc.callbacks: a builtin, which takes a tenth of what a Python function would), `note_event` and
// the settings.
void bind_events(pybind11::module_& module);

void forget_events_in_child() noexcept;

}  // namespace pymon
