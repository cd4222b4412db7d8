"""What the probe costs a training step: hooks on against hooks off, alternating in one process.

    python bench/probe_cost.py [--rounds 100] [--json FILE] [--peers-python PYTHON]

Each round runs three blocks of steps in random order: hooks on, off, and off once more. `step_us` is the median over
the rounds of on minus off, `noise_us` the same of the two offs (identical baselines): a figure below the noise says
nothing more than that. Two models: a tiny one (a loader, two linear layers, SGD), the worst case for a fixed cost, and
a deep one of 62 linear layers. The figures of the deep one have keys that begin with `deep_`.

TraceML 0.5.0 and probing 0.2.4 are measured the same way where PYTHON has them (`pip install torch==2.13.0
traceml-ai==0.5.0 probing==0.2.4`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.start_cost import attach_time_ms, boot_time_ms  # noqa: E402

os.environ["PYMON_SOCKET"] = "/nonexistent/agent.sock"  # the probe alone, without a daemon

STEPS_PER_BLOCK = 40
WARM_UP_ROUNDS = 3
MODELS = {"": 2, "deep_": 62}  # linear layers, by the prefix of the keys
PEERS = ("traceml", "probing")
Figures = dict[str, "float | None"]
PEER_S = 300.0  # a peer that hangs is left out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--peers-python", default=sys.executable, help="A Python that has TraceML and probing."
    )
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    for name in PEERS:
        for model in MODELS:
            figures |= peer(name, model, arguments.peers_python, arguments.rounds)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(rounds: int) -> Figures:
    """Of the probe, for each model."""
    attach_ms, boot_ms = attach_time_ms(), boot_time_ms()
    figures: Figures = {
        "startup_ms": boot_ms + attach_ms,
        "boot_ms": boot_ms,
        "attach_ms": attach_ms,
    }
    hooks = Hooks()
    for model, layers in MODELS.items():
        own_ns, steps = hooks.own_cost()
        figures |= alternated(training_step(layers), hooks.switch, rounds, model)
        own_after_ns, steps_after = hooks.own_cost()
        figures[f"{model}native_step_us"] = (own_after_ns - own_ns) / (steps_after - steps) / 1e3
    return figures


def alternated(
    step: Callable[[], None], switch: Callable[[bool], None], rounds: int, prefix: str
) -> Figures:
    """On, off, and off again, in random order in each round. Ends with what is measured switched off."""
    times: dict[str, list[float]] = {"on": [], "off": [], "off again": []}
    for number in range(WARM_UP_ROUNDS + rounds):
        for name in random.sample(list(times), len(times)):
            switch(name == "on")
            took_us = block_us(step)
            if number >= WARM_UP_ROUNDS:
                times[name].append(took_us)
    switch(False)
    cost_us, base_us = median_difference(times["on"], times["off"]), statistics.median(times["off"])
    return {
        f"{prefix}step_us": cost_us,
        f"{prefix}step_ratio": cost_us / base_us,
        f"{prefix}noise_us": abs(median_difference(times["off again"], times["off"])),
        f"{prefix}baseline_step_us": base_us,
    }


def median_difference(ones: list[float], others: list[float]) -> float:
    return statistics.median(one - other for one, other in zip(ones, others, strict=True))


class Hooks:
    """The probe's hooks as `pymon.attach()` puts them in, with a switch."""

    def __init__(self) -> None:
        import torch
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self._global: list[Any] = [
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        ]
        self._places: list[tuple[Any, str]] = [
            (dataloader._BaseDataLoaderIter, "__next__"),
            (torch.autograd.Variable, "_execution_engine"),
        ]
        self._off = [getattr(owner, name) for owner, name in self._places]
        import pymon

        pymon.attach()
        self._on = [getattr(owner, name) for owner, name in self._places]
        self._registered = [dict(hooks) for hooks in self._global]
        if any(on is off for on, off in zip(self._on, self._off, strict=True)):
            sys.exit("the probe did not attach: there is nothing to measure")

    def switch(self, on: bool) -> None:
        chosen = self._on if on else self._off
        for (owner, name), function in zip(self._places, chosen, strict=True):
            setattr(owner, name, function)
        for hooks, registered in zip(self._global, self._registered, strict=True):
            hooks.clear()
            if on:
                hooks.update(registered)

    def own_cost(self) -> tuple[int, int]:
        """(nanoseconds, steps) as the page tells them, up to the last whole step."""
        from pymon.link.page import PageReader

        for fd in os.listdir("/proc/self/fd"):
            try:
                if not os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:pymon-page"):
                    continue
            except OSError:
                continue
            train = PageReader.open(int(fd)).train()
            return (train.own_ns_total, train.steps_total) if train else (0, 0)
        return 0, 0


def training_step(layers: int) -> Callable[[], None]:
    """A step of a model of that many linear layers, with a loader and SGD."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    hidden = [layer for _ in range(layers - 1) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(TensorDataset(torch.randn(512, 64)), batch_size=16)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    source = batches()

    def step() -> None:
        (inputs,) = next(source)
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()

    return step


def block_us(step: Callable[[], None]) -> float:
    """The median step of one block."""
    times = []
    for _ in range(STEPS_PER_BLOCK):
        began_ns = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - began_ns)
    return statistics.median(times) / 1e3


def peer(name: str, model: str, python: str, rounds: int) -> Figures:
    """The peer's cost of the same step; None, and the reason told, where it cannot be measured."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, "-W", "ignore", str(ROOT / "bench/probe_peers.py"), name, model, str(rounds)]
    try:
        done = subprocess.run(
            command, env=env, check=False, capture_output=True, text=True, timeout=PEER_S
        )
        told: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as err:
        said = done.stderr.strip().splitlines() if isinstance(err, (ValueError, IndexError)) else []
        print(f"{name} is not measured: {said[-1] if said else err}", file=sys.stderr)
        told = {}
    return {
        f"{model}{name}_{key}": told.get(model + key)
        for key in ("step_us", "step_ratio", "noise_us")
    }


def show(figures: Figures) -> None:
    names = ["2 layers", "62 layers"]
    print(f"{'':44}{names[0]:>14}{names[1]:>14}")
    row("a step without anything (µs)", figures, "baseline_step_us")
    row("the probe adds (µs)", figures, "step_us")
    row("  of it, timed by the hooks themselves", figures, "native_step_us")
    row("  in per cent of the step", figures, "step_ratio", 100)
    row("  two identical baselines differ by (µs)", figures, "noise_us")
    for name in PEERS:
        row(f"{name} adds (µs)", figures, f"{name}_step_us")
        row("  in per cent of the step", figures, f"{name}_step_ratio", 100)
        row("  two identical baselines differ by (µs)", figures, f"{name}_noise_us")
    print(
        f"start of the process, once: {figures['startup_ms']:.1f} ms, of it {figures['boot_ms']:.2f} ms the start of a "
        "Python that never trains"
    )


def row(text: str, figures: Figures, key: str, factor: float = 1) -> None:
    values = [figures[model + key] for model in MODELS]
    cells = ["-" if value is None else f"{factor * value:.2f}" for value in values]
    print(f"{text:44}{cells[0]:>14}{cells[1]:>14}")


if __name__ == "__main__":
    main()
