// Where the user's code makes certain calls, recorded only while a capture runs: a table of fixed size.
#pragma once

#include <Python.h>

#include <cstdint>

namespace pymon {

// Notes one call, made from the Python frame that runs now; an exception that is set stays set.
void note_call(PyObject* name, uint64_t duration_ns) noexcept;

// Calls from files below this folder are their callers': torch's own helpers are not where the user can change it.
void set_library_folder(const char* folder, size_t bytes);

// A list of (name, file, line, function, calls, total_ns, max_ns); NULL with an error set where memory is short.
PyObject* call_sites() noexcept;

void clear_call_sites() noexcept;

}  // namespace pymon
