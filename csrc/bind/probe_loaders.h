// What the hooks ask of DataLoaders and of their batches. Python's own attributes of them are read only here.
#pragma once

#include <pybind11/pybind11.h>

#include "core/step_clock.h"

namespace pymon {

// Of a fetch from this iterator, before it runs. The loader is known by its sampler, which lives as long as it does.
Fetch describe_fetch(PyObject* iterator) noexcept;

// Of the start of an iteration over `loader`, before it runs.
Fetch describe_start(PyObject* loader) noexcept;

// Adds what the batch's shape shows without doubt. docs/probe.md, "Samples and tokens", has the rule.
void describe_batch(Fetch& fetch, PyObject* batch) noexcept;

// Ten times a second at most: how many batches are ready before a fetch, and how large the one is that it gave.
bool look_is_due(uint64_t now_ns) noexcept;
void look_at_queue(RunBody& run, PyObject* iterator) noexcept;
void look_at_batch(RunBody& run, PyObject* batch) noexcept;

// torch.is_grad_enabled and torch.multiprocessing.get_sharing_strategy; a None is never asked.
void set_loader_questions(const pybind11::object& grad_enabled, const pybind11::object& sharing_strategy);

void set_tensor_type(PyObject* type) noexcept;
void forget_loaders_in_child() noexcept;

}  // namespace pymon
