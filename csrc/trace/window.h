// Which part of the trace is looked at.
#pragma once

#include "trace/sums.h"

namespace pymon::trace {

// ProfilerStep ranges; else, where the number of steps is given, the whole trace; else what lies between the first and
// the last end of Optimizer.step; else the whole trace. Fills source, steps_total, step_ns, ops_total.
Intervals find_window(const Reader& reader, uint64_t given_steps, Sums* out);

}  // namespace pymon::trace
