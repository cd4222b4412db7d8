"""What TraceML 0.5.0 or probing 0.2.4 cost the same step, measured the same way as the probe (bench/probe_cost.py).

    PYTHON_OF_THEIRS bench/probe_peers.py traceml|probing ROUNDS      prints one JSON object

TraceML: `trace_step` around the step against the plain step; it needs its aggregator (`traceml serve`), without which
it records nothing, and is then not measured. Its patches stay in for both, so this is a lower bound. probing: its
eval-frame hook on against off. Neither is a dependency of pymon: give a Python that has them and torch.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from probe_cost import WARM_UP_BLOCKS, block_us, median_difference, training_step

Switched = tuple[Callable[[], None], Callable[[bool], None]]  # the step, and what switches the peer


def traceml() -> Switched:
    import torch
    import traceml_ai

    traceml_ai.init(on_missing_aggregator="raise")
    plain, model, on = training_step(), torch.nn.Linear(1, 1), [False]

    def step() -> None:
        if on[0]:
            with traceml_ai.trace_step(model):
                plain()
        else:
            plain()

    return step, lambda wanted: on.__setitem__(0, wanted)


def probing() -> Switched:
    import probing as peer

    return training_step(), lambda wanted: peer.enable_tracer() if wanted else peer.disable_tracer()


def main() -> None:
    step, switch = {"traceml": traceml, "probing": probing}[sys.argv[1]]()
    times: dict[str, list[float]] = {"on": [], "off": [], "off again": []}
    for number in range(WARM_UP_BLOCKS + int(sys.argv[2])):
        for name in random.sample(list(times), len(times)):
            switch(name == "on")
            took_us = block_us(step)
            if number >= WARM_UP_BLOCKS:
                times[name].append(took_us)
    cost_us = median_difference(times["on"], times["off"])
    noise_us = abs(median_difference(times["off again"], times["off"]))
    print(json.dumps({"step_us": cost_us, "noise_us": noise_us}))


if __name__ == "__main__":
    main()
