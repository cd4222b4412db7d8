"""What TraceML 0.5.0 or probing 0.2.4 cost the same step, measured the same way as the probe (bench/probe_cost.py).

    PYTHON_OF_THEIRS bench/probe_peers.py traceml|probing MODEL ROUNDS      prints one JSON object

MODEL is the prefix of its keys. TraceML: `trace_step` around the step against the plain step, with an aggregator of its
own, without which it records nothing; its patches stay in for both, so this is a lower bound. probing: its eval-frame
hook on against off. Neither is a dependency of pymon: give a Python that has them and torch.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from probe_cost import MODELS, alternated, training_step

RUN = "bench"
Switched = tuple[Callable[[], None], Callable[[bool], None]]  # the step, and what switches the peer


@contextlib.contextmanager
def traceml(layers: int) -> Iterator[Switched]:
    import torch
    import traceml_ai

    with tempfile.TemporaryDirectory() as logs, aggregator(logs) as port:
        traceml_ai.init(
            on_missing_aggregator="raise",
            aggregator_port=port,
            session_id=RUN,
            logs_dir=logs,
            connect_timeout_sec=60.0,
        )
        plain, model, on = training_step(layers), torch.nn.Linear(1, 1), [False]

        def step() -> None:
            if on[0]:
                with traceml_ai.trace_step(model):
                    plain()
            else:
                plain()

        yield step, lambda wanted: on.__setitem__(0, wanted)


@contextlib.contextmanager
def aggregator(logs: str) -> Iterator[int]:
    """TraceML's own, at the port that it gives."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = int(sock.getsockname()[1])
    executable = Path(sys.executable).parent / "traceml"
    command = [
        executable,
        "serve",
        "--logs-dir",
        logs,
        "--run-name",
        RUN,
        "--aggregator-port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def probing(layers: int) -> Iterator[Switched]:
    import probing as peer

    yield (
        training_step(layers),
        lambda wanted: peer.enable_tracer() if wanted else peer.disable_tracer(),
    )


def main() -> None:
    _, name, model, rounds = sys.argv
    with {"traceml": traceml, "probing": probing}[name](MODELS[model]) as (step, switch):
        print(json.dumps(alternated(step, switch, int(rounds), model)), flush=True)


if __name__ == "__main__":
    main()
