#include "bind/probe_call_sites.h"

#include <frameobject.h>  // PyFrame_GetBack, until Python 3.10

#include <cstring>
#include <string>

namespace pymon {
namespace {

constexpr uint32_t kSites = 1024;  // places in the user's code, a power of two; more are not told apart any more
constexpr int kFramesUp = 32;

struct Site {
  PyObject* name = nullptr;  // owned, as is `code`
  PyCodeObject* code = nullptr;
  int line = 0;
  uint64_t calls = 0, total_ns = 0, max_ns = 0;
};
Site g_sites[kSites];
uint32_t g_used = 0;
std::string g_library;

bool in_library(PyCodeObject* code) noexcept {
  if (g_library.empty()) return false;
  Py_ssize_t size = 0;
  const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
  if (file == nullptr) {
    PyErr_Clear();
    return false;
  }
  return static_cast<size_t>(size) > g_library.size() && std::memcmp(file, g_library.data(), g_library.size()) == 0;
}

// The innermost frame outside the library; the innermost of all where there is none. New references.
PyFrameObject* user_frame(PyCodeObject** code) noexcept {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return nullptr;
  Py_INCREF(frame);
  *code = PyFrame_GetCode(frame);
  for (int up = 0; up < kFramesUp && in_library(*code); ++up) {
    PyFrameObject* back = PyFrame_GetBack(frame);
    if (back == nullptr) break;
    Py_DECREF(frame);
    Py_DECREF(*code);
    frame = back;
    *code = PyFrame_GetCode(frame);
  }
  return frame;
}

Site* find(PyObject* name, PyCodeObject* code, int line) noexcept {
  const uint64_t key = reinterpret_cast<uintptr_t>(code) / 16 * 31 + static_cast<uint64_t>(line) * 7919 +
                       reinterpret_cast<uintptr_t>(name) / 16;
  for (uint32_t probe = 0; probe < kSites; ++probe) {
    Site& site = g_sites[(key + probe) % kSites];
    if (site.code == nullptr) {
      if (g_used >= kSites / 2) return nullptr;
      ++g_used;
      site.name = Py_NewRef(name);
      site.code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(code)));
      site.line = line;
      return &site;
    }
    if (site.code == code && site.line == line && site.name == name) return &site;
  }
  return nullptr;
}

}  // namespace

void note_call(PyObject* name, uint64_t duration_ns) noexcept {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyCodeObject* code = nullptr;
  PyFrameObject* frame = user_frame(&code);
  if (frame != nullptr) {
    Site* site = find(name, code, PyFrame_GetLineNumber(frame));
    if (site != nullptr) {
      ++site->calls;
      site->total_ns += duration_ns;
      if (duration_ns > site->max_ns) site->max_ns = duration_ns;
    }
    Py_DECREF(code);
    Py_DECREF(frame);
  }
  PyErr_Restore(type, value, trace);
}

void set_library_folder(const char* folder, size_t bytes) { g_library.assign(folder, bytes); }

PyObject* call_sites() noexcept {
  PyObject* list = PyList_New(0);
  if (list == nullptr) return nullptr;
  for (const Site& site : g_sites) {
    if (site.code == nullptr) continue;
    PyObject* row = Py_BuildValue("OOiOKKK", site.name, site.code->co_filename, site.line, site.code->co_name,
                                  static_cast<unsigned long long>(site.calls),
                                  static_cast<unsigned long long>(site.total_ns),
                                  static_cast<unsigned long long>(site.max_ns));
    if (row == nullptr || PyList_Append(list, row) != 0) {
      Py_XDECREF(row);
      Py_DECREF(list);
      return nullptr;
    }
    Py_DECREF(row);
  }
  return list;
}

void clear_call_sites() noexcept {
  for (Site& site : g_sites) {
    PyObject* name = site.name;
    auto* code = reinterpret_cast<PyObject*>(site.code);
    site = Site{};
    Py_XDECREF(name);
    Py_XDECREF(code);
  }
  g_used = 0;
}

}  // namespace pymon
