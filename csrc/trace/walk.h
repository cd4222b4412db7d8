// One pass over the host's events, thread by thread, outermost first: who stands in whom.
#pragma once

#include "trace/links.h"
#include "trace/sums.h"

namespace pymon::trace {

// Fills op_ns, top_ops, reads, blocking and sites.
void walk_host(const Reader& reader, const Links& links, const Blocking& blocking, const Intervals& window, Sums* out);

}  // namespace pymon::trace
