"""A trace's GPU work by class."""

import json

from tests.gpu.kineto_sums import furthest, sums_of_trace


def test_kernels_copies_and_sets_are_summed_and_nothing_else(tmp_path):
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm_a", "dur": 2.5},
        {"ph": "X", "cat": "kernel", "name": "gemm_b", "dur": 1.0},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "dur": 4},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "dur": 1},
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 0.5},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "Optimizer.step#AdamW.step", "dur": 99},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5},
        {"ph": "i", "name": "Record Window End"},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert sums_of_trace(path, lambda name: name.split("_", 1)[0]) == {
        "gemm": (2, 3500),
        "copy_host_to_device": (1, 4000),
        "copy_device_to_device": (1, 1000),
        "set": (1, 500),
    }


def test_the_class_that_differs_most():
    assert furthest({"gemm": (1, 90), "set": (1, 11)}, {"gemm": (1, 90), "set": (1, 10)}) == (
        "set",
        0.01,
    )
    assert furthest({}, {}) == ("", 0.0)
