// What a kernel is for, by its name.
#pragma once

#include "core/layout.h"

namespace pymon {

// `name` is mangled, as CUPTI gives it; null is `other`. Microseconds: the caller remembers the answer for each name.
WorkClass kernel_class(const char* name) noexcept;

}  // namespace pymon
