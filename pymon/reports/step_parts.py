"""Where the step's time went, as parts of one whole: shared by the terminal and the HTML report."""

from __future__ import annotations

from dataclasses import dataclass

from pymon.model.trace import GpuTime, TraceFacts


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the window; `tone` names its colour."""

    label: str
    time_s: float
    tone: str


def step_parts(facts: TraceFacts) -> tuple[Part, ...]:
    """Parts that add up to the window; empty ones are left out. Without GPU events these are the
    host's.
    """
    parts = _gpu_parts(facts.gpu) if facts.gpu is not None else _host_parts(facts)
    return tuple(part for part in parts if part.time_s > 0)


def parts_title(facts: TraceFacts) -> str:
    """What the whole is."""
    if facts.gpu is None:
        return "Where the training thread's time went (no GPU events in this trace)"
    return "Where the GPU's time went"


def _gpu_parts(gpu: GpuTime) -> list[Part]:
    return [
        Part("computing", gpu.compute_s, "work"),
        Part("communication alone", gpu.exposed_communication_s, "comm"),
        Part("copies alone", gpu.exposed_copy_s, "copy"),
        Part("idle: waiting for data", gpu.idle_by_data_s, "data"),
        Part("idle: after a synchronisation", gpu.idle_by_sync_s, "sync"),
        Part("idle: allocator", gpu.idle_by_allocator_s, "alloc"),
        Part("idle: host not ready", gpu.idle_by_host_s, "host"),
        Part("idle: between kernels already queued", gpu.idle_by_gpu_s, "rest"),
    ]


def _host_parts(facts: TraceFacts) -> list[Part]:
    loading_s = facts.loader.wait_s if facts.loader else 0.0
    reads_s = min(facts.reads.time_s, max(0.0, facts.window_s - loading_s))
    rest_s = max(0.0, facts.window_s - loading_s - reads_s)
    return [
        Part("waiting for data", loading_s, "data"),
        Part("reading scalars", reads_s, "sync"),
        Part("all else", rest_s, "work"),
    ]
