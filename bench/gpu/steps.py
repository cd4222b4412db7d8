"""What pymon adds to a real training step, a small GPT's or a small ResNet's: mean, p99, p99.9, and the noise floor.

    python -m bench.gpu.steps gpt|resnet [...] [--seconds 60] [--without]

One process; blocks of steps alternate at random between `off` (hooks out, CUPTI yielded), `off_again` (the same once
more: the noise), `events` (hooks in, CUDA events) and `all` (CUPTI as well). The mean is the median over rounds of the
difference of two blocks' means, the percentiles are differences of percentiles over all steps of a state. What a layer
leaves behind after it yielded is in every state of this process, so `--without` gives the step time of a process that
never had pymon in it; bench/gpu/check.py runs that twice and sets it against `off`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.gpu import part
from bench.gpu.launches import Lease
from bench.gpu.models import MODELS

STATES = ("off", "off_again", "events", "all")
STEPS = 25  # of a block, about a fifth of a second
SETTLING = 5  # of these not counted: the switch itself is not the cost of a step
WARM_UP = 30


def measure(machine: part.Machine, arguments: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in arguments.models:
        one = without if arguments.without else interleaved
        figures |= one(machine, name, arguments.seconds / len(arguments.models))
    return figures


def interleaved(machine: part.Machine, name: str, seconds: float) -> dict[str, Any]:
    from bench.probe_cost import Hooks

    hooks = Hooks()
    steps_of_block, settling = (6, 2) if machine.is_double else (STEPS, SETTLING)
    native = part.attached(machine)
    step = warm(machine, MODELS[name](machine))
    reader = part.page()
    kernels_before = part.settled(reader).kernels_total
    lease = Lease(native)
    times: dict[str, list[list[float]]] = {state: [] for state in STATES}
    until = time.monotonic() + seconds
    order = random.Random(1)
    while time.monotonic() < until or len(times["all"]) < 2:
        for state in order.sample(STATES, len(STATES)):
            hooks.switch(state in ("events", "all"))
            lease.switch(state == "all")
            times[state].append(block_us(step, steps_of_block)[settling:])
    hooks.switch(True)
    lease.switch(True)
    cupti, gpu = part.settled(reader), reader.gpu()
    steps = sum(len(block) for block in times["all"])
    figures: dict[str, Any] = {
        f"{name}_step_us": statistics.median(of_all(times["off"])),
        f"{name}_mean_us": statistics.mean(of_all(times["off"])),
        f"{name}_p99_us": part.percentile(of_all(times["off"]), 99),
        f"{name}_p999_us": part.percentile(of_all(times["off"]), 99.9),
        f"{name}_steps": steps,
        f"{name}_rounds": len(times["all"]),
        f"{name}_kernels_per_step": (cupti.kernels_total - kernels_before)
        / (steps_of_block * len(times["all"])),
        f"{name}_cupti_state": f"{cupti.state}: {cupti.reason}",
        f"{name}_events_state": f"{gpu.state}: {gpu.reason}",
        f"{name}_cupti_dropped": cupti.dropped_total,
    }
    for key, state in (("noise", "off_again"), ("events", "events"), ("all", "all")):
        figures |= added(f"{name}_{key}", times[state], times["off"])
    return figures


def added(key: str, blocks: list[list[float]], base: list[list[float]]) -> dict[str, float]:
    """What the steps of `blocks` take more than those of `base`, in microseconds and as a share of the step."""
    mean_us = part.median_difference(
        [statistics.mean(block) for block in blocks], [statistics.mean(block) for block in base]
    )
    steps, base_steps = of_all(blocks), of_all(base)
    usual_us = statistics.mean(base_steps)
    figures = {f"{key}_mean_added_us": mean_us, f"{key}_mean_ratio": mean_us / usual_us}
    for name, per_cent in (("p99", 99.0), ("p999", 99.9)):
        more_us = part.percentile(steps, per_cent) - part.percentile(base_steps, per_cent)
        figures |= {f"{key}_{name}_added_us": more_us, f"{key}_{name}_ratio": more_us / usual_us}
    return figures


def without(machine: part.Machine, name: str, seconds: float) -> dict[str, Any]:
    step = warm(machine, MODELS[name](machine))
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or not times:
        times += block_us(step, STEPS)[SETTLING:]
    return {
        f"{name}_without_step_us": statistics.median(times),
        f"{name}_without_mean_us": statistics.mean(times),
        f"{name}_without_p99_us": part.percentile(times, 99),
    }


def warm(machine: part.Machine, step: Callable[[], float]) -> Callable[[], float]:
    for _ in range(2 if machine.is_double else WARM_UP):
        step()
    machine.torch.cuda.synchronize()
    return step


def block_us(step: Callable[[], float], steps: int) -> list[float]:
    times = []
    for _ in range(steps):
        began_ns = time.perf_counter_ns()
        step()
        times.append((time.perf_counter_ns() - began_ns) / 1e3)
    return times


def of_all(blocks: list[list[float]]) -> list[float]:
    return [us for block in blocks for us in block]


if __name__ == "__main__":
    part.main(
        __doc__,
        measure,
        ("models", {"choices": list(MODELS), "nargs": "+"}),
        ("--without", {"action": "store_true", "help": "in a process that never had pymon"}),
    )
