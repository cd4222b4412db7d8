#include "bind/probe_loaders.h"

#include <cstddef>
#include <cstring>

namespace pymon {
namespace {

constexpr uint32_t kLoaders = 16;  // known at a time; the one that was asked last the longest ago gives way
constexpr uint64_t kLookEveryNs = 100'000'000;
constexpr Py_ssize_t kTensorsMax = 64;  // of a batch that are measured

enum class Shape : uint8_t { kUnknown, kHidden, kShown };

// One loader, and where its batches show how many samples they hold.
struct Known {
  PyObject* sampler = nullptr;  // borrowed; means something only while `reference` is alive
  PyObject* reference = nullptr;
  uint64_t last_use = 0;
  Loader loader;
  bool described = false;
  Shape shape = Shape::kUnknown;
  Py_ssize_t at = 0;        // of the tensor in a list or tuple
  PyObject* key = nullptr;  // of the tensor in a dict
  bool tokens = false;      // each of its elements is one
};
Known g_known[kLoaders];
uint64_t g_uses = 0, g_looked_ns = 0;
PyObject* g_grad_enabled = nullptr;
PyObject* g_sharing_strategy = nullptr;
PyObject* g_tensor = nullptr;  // compared only

PyObject* name(const char* text) noexcept { return PyUnicode_InternFromString(text); }

// A new reference, or null without an error set.
PyObject* attribute(PyObject* object, PyObject* attribute_name) noexcept {
  PyObject* value = PyObject_GetAttr(object, attribute_name);
  if (value == nullptr) PyErr_Clear();
  return value;
}

PyObject* attribute(PyObject* object, const char* text) noexcept {
  PyObject* value = PyObject_GetAttrString(object, text);
  if (value == nullptr) PyErr_Clear();
  return value;
}

// A whole number plus one; 0 where there is none.
uint64_t number_plus_1(PyObject* object, const char* text) noexcept {
  PyObject* value = attribute(object, text);
  if (value == nullptr) return 0;
  const long number = PyLong_Check(value) ? PyLong_AsLong(value) : -1;
  PyErr_Clear();
  Py_DECREF(value);
  return number < 0 ? 0 : static_cast<uint64_t>(number) + 1;
}

bool is_true(PyObject* object, const char* text) noexcept {
  PyObject* value = attribute(object, text);
  const bool answer = value == Py_True;
  Py_XDECREF(value);
  return answer;
}

// Where `text` stands among `known`, from 1 on; 0: nowhere. Takes the reference.
uint64_t position(PyObject* text, std::initializer_list<const char*> known) noexcept {
  uint64_t found = 0, at = 0;
  const char* plain = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  for (const char* one : known) {
    ++at;
    if (plain != nullptr && std::strcmp(one, plain) == 0) found = at;
  }
  PyErr_Clear();
  Py_XDECREF(text);
  return found;
}

uint64_t start_method(PyObject* iterator) noexcept {
  PyObject* workers = attribute(iterator, "_workers");
  PyObject* method = nullptr;
  if (workers != nullptr && PyList_Check(workers) && PyList_GET_SIZE(workers) > 0) {
    method = attribute(PyList_GET_ITEM(workers, 0), "_start_method");
  }
  Py_XDECREF(workers);
  return position(method, {"fork", "spawn", "forkserver"});
}

void read_settings(Known& known, PyObject* iterator) noexcept {
  known.described = true;
  LoaderSettings& settings = known.loader.settings;
  settings.workers_plus_1 = number_plus_1(iterator, "_num_workers");
  settings.prefetch_factor_plus_1 = number_plus_1(iterator, "_prefetch_factor");
  settings.flags_plus_1 = 1;
  if (is_true(iterator, "_pin_memory")) settings.flags_plus_1 += kLoaderPins;
  if (is_true(iterator, "_persistent_workers")) settings.flags_plus_1 += kLoaderPersistent;
  settings.start_method = start_method(iterator);
  const uint64_t size_plus_1 = is_true(iterator, "_auto_collation") ? number_plus_1(known.sampler, "batch_size") : 0;
  settings.batch_size = size_plus_1 == 0 ? 0 : size_plus_1 - 1;
  if (settings.batch_size == 0) known.shape = Shape::kHidden;
  if (g_sharing_strategy == nullptr || settings.workers_plus_1 < 2) return;
  PyObject* strategy = PyObject_CallNoArgs(g_sharing_strategy);
  PyErr_Clear();
  settings.sharing_strategy = position(strategy, {"file_descriptor", "file_system"});
}

bool alive(const Known& known) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* target = nullptr;
  const bool lives = PyWeakref_GetRef(known.reference, &target) == 1;
  Py_XDECREF(target);
  return lives;
#else
  return PyWeakref_GetObject(known.reference) != Py_None;
#endif
}

Known* known_by(PyObject* sampler) noexcept {
  Known* oldest = &g_known[0];
  for (Known& known : g_known) {
    if (known.sampler == sampler && alive(known)) {
      known.last_use = ++g_uses;
      return &known;
    }
    if (known.last_use < oldest->last_use) oldest = &known;
  }
  PyObject* reference = PyWeakref_NewRef(sampler, nullptr);
  if (reference == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  for (Known& known : g_known) {  // a dead one rather than the oldest
    if (known.reference != nullptr && !alive(known)) oldest = &known;
  }
  Py_XDECREF(oldest->reference);
  Py_XDECREF(oldest->key);
  *oldest = Known{};
  oldest->sampler = sampler;
  oldest->reference = reference;
  oldest->last_use = ++g_uses;
  return oldest;
}

// A fetch's loader is a part of one of `g_known`.
Known* of(const Fetch& fetch) noexcept {
  if (fetch.loader == nullptr) return nullptr;
  return reinterpret_cast<Known*>(reinterpret_cast<char*>(fetch.loader) - offsetof(Known, loader));
}

Fetch describe(PyObject* owner, Known** found) noexcept {
  static PyObject* const kSampler = name("_index_sampler");
  Fetch fetch;
  PyObject* sampler = attribute(owner, kSampler);
  *found = sampler == nullptr ? nullptr : known_by(sampler);
  if (*found != nullptr) fetch.loader = &(*found)->loader;
  Py_XDECREF(sampler);
  if (g_grad_enabled == nullptr) return fetch;
  PyObject* enabled = PyObject_CallNoArgs(g_grad_enabled);
  if (enabled == nullptr) PyErr_Clear();
  fetch.grad = enabled != Py_False;
  Py_XDECREF(enabled);
  return fetch;
}

bool is_tensor(PyObject* object) noexcept { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == g_tensor; }

// A tensor's shape: a first dimension, and the number of elements. `rows` is -1 where it has none.
struct Extent {
  Py_ssize_t rows = -1;
  uint64_t elements = 1;
};

// By `shape`: len() and size() of a tensor take several times as long.
Extent extent_of(PyObject* tensor) noexcept {
  static PyObject* const kShape = name("shape");
  Extent extent;
  PyObject* shape = attribute(tensor, kShape);
  if (shape != nullptr && PyTuple_Check(shape)) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(shape); ++at) {
      const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, at));
      if (at == 0) extent.rows = size;
      extent.elements *= static_cast<uint64_t>(size > 0 ? size : 0);
    }
    if (PyErr_Occurred()) PyErr_Clear();  // a size that is a symbol
  }
  Py_XDECREF(shape);
  return extent;
}

// The dict of a mapping that is none itself, as the BatchEncoding of transformers; a new reference, of dicts too.
PyObject* as_dict(PyObject* batch) noexcept {
  if (PyDict_Check(batch)) return Py_NewRef(batch);
  static PyObject* const kData = name("data");
  if (PyList_Check(batch) || PyTuple_Check(batch) || is_tensor(batch)) return nullptr;
  PyObject* data = attribute(batch, kData);
  if (data != nullptr && PyDict_Check(data)) return data;
  Py_XDECREF(data);
  return nullptr;
}

// Calls `each(tensor, key, index)` for the tensors of the batch's first level.
template <typename Each>
void for_tensors(PyObject* batch, PyObject* dict, Each each) noexcept {
  if (is_tensor(batch)) return each(batch, nullptr, Py_ssize_t{0});
  if (dict != nullptr) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
      if (is_tensor(value)) each(value, key, Py_ssize_t{0});
    }
  } else if (PyList_Check(batch) || PyTuple_Check(batch)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(batch);
    for (Py_ssize_t at = 0; at < size && at < kTensorsMax; ++at) {
      PyObject* item = PySequence_Fast_GET_ITEM(batch, at);
      if (is_tensor(item)) each(item, nullptr, at);
    }
  }
}

// Decides by one batch for all of the loader: every tensor begins with as many as the loader puts into a batch.
void study_shape(Known& known, PyObject* batch, PyObject* dict) noexcept {
  bool agree = true, any = false;
  const auto size = static_cast<Py_ssize_t>(known.loader.settings.batch_size);
  for_tensors(batch, dict, [&](PyObject* tensor, PyObject* key, Py_ssize_t at) {
    const Py_ssize_t rows = extent_of(tensor).rows;
    if (rows < 0) return;  // a number
    agree &= rows == size;
    const bool names_tokens = key != nullptr && PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "input_ids") == 0;
    if (any && !names_tokens) return;
    any = true;
    known.at = at;
    Py_XSETREF(known.key, key == nullptr ? nullptr : Py_NewRef(key));
    known.tokens = names_tokens;
  });
  known.shape = any && agree ? Shape::kShown : Shape::kHidden;
}

PyObject* shown_tensor(const Known& known, PyObject* batch, PyObject* dict) noexcept {
  if (known.key != nullptr) {
    PyObject* value = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, known.key);
    if (value == nullptr) PyErr_Clear();
    return value;
  }
  if (is_tensor(batch)) return batch;
  const bool sequence = PyList_Check(batch) || PyTuple_Check(batch);
  return sequence && known.at < PySequence_Fast_GET_SIZE(batch) ? PySequence_Fast_GET_ITEM(batch, known.at) : nullptr;
}

}  // namespace

Fetch describe_fetch(PyObject* iterator) noexcept {
  Known* known;
  Fetch fetch = describe(iterator, &known);
  fetch.iterator = iterator;
  if (known != nullptr && !known->described) read_settings(*known, iterator);
  return fetch;
}

Fetch describe_start(PyObject* loader) noexcept {
  Known* known;
  Fetch fetch = describe(loader, &known);
  fetch.starts = true;
  return fetch;
}

void describe_batch(Fetch& fetch, PyObject* batch) noexcept {
  Known* known = of(fetch);
  if (known == nullptr || known->shape == Shape::kHidden) return;
  PyObject* dict = as_dict(batch);
  if (known->shape == Shape::kUnknown) study_shape(*known, batch, dict);
  if (known->shape == Shape::kShown) {
    PyObject* tensor = shown_tensor(*known, batch, dict);
    const Extent extent = tensor != nullptr && is_tensor(tensor) ? extent_of(tensor) : Extent{};
    if (extent.rows > 0) {
      fetch.samples = static_cast<uint64_t>(extent.rows);
      if (known->tokens) fetch.tokens = extent.elements;
    }
  }
  Py_XDECREF(dict);
}

bool look_is_due(uint64_t now_ns) noexcept {
  if (now_ns - g_looked_ns < kLookEveryNs) return false;
  g_looked_ns = now_ns;
  return true;
}

void look_at_queue(RunBody& run, PyObject* iterator) noexcept {
  PyObject* queue = attribute(iterator, "_data_queue");
  if (queue == nullptr) return;  // no workers
  PyObject* depth = PyObject_CallMethod(queue, "qsize", nullptr);
  const long batches = depth != nullptr && PyLong_Check(depth) ? PyLong_AsLong(depth) : -1;
  PyErr_Clear();
  if (batches >= 0) {
    ++run.queue_looks_total;
    run.queue_depth_total += static_cast<uint64_t>(batches);
    run.queue_empty_total += batches == 0;
  }
  Py_XDECREF(depth);
  Py_DECREF(queue);
}

void look_at_batch(RunBody& run, PyObject* batch) noexcept {
  uint64_t bytes = 0;
  PyObject* dict = as_dict(batch);
  for_tensors(batch, dict, [&bytes](PyObject* tensor, PyObject*, Py_ssize_t) {
    const uint64_t more_plus_1 = number_plus_1(tensor, "nbytes");
    bytes += more_plus_1 == 0 ? 0 : more_plus_1 - 1;
  });
  Py_XDECREF(dict);
  if (bytes == 0) return;  // nothing that could be measured
  ++run.batch_looks_total;
  run.batch_bytes_total += bytes;
  run.last_batch_bytes = bytes;
}

void set_loader_questions(const pybind11::object& grad_enabled, const pybind11::object& sharing_strategy) {
  const auto kept = [](const pybind11::object& call) {
    return call.is_none() ? nullptr : pybind11::object(call).release().ptr();
  };
  g_grad_enabled = kept(grad_enabled);
  g_sharing_strategy = kept(sharing_strategy);
}

void set_tensor_type(PyObject* type) noexcept { g_tensor = type; }

void forget_loaders_in_child() noexcept {
  for (Known& known : g_known) known = Known{};  // leaked, like all that is the parent's
  g_looked_ns = 0;
}

}  // namespace pymon
