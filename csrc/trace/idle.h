// Where the GPU's time went, and why it stood idle.
#pragma once

#include "trace/links.h"
#include "trace/sums.h"

namespace pymon::trace {

GpuSums gpu_sums(const Reader& reader, const Links& links, const Blocking& blocking, const Intervals& loader,
                 const Intervals& window);

}  // namespace pymon::trace
