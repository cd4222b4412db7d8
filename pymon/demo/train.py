"""A small training run in which, after a while, something goes wrong: `pymon demo` runs it.

It is ordinary PyTorch and does not import pymon. For `--fault-after-s` seconds every step does the
same work; from then on the planted fault adds its own, until the process is told to end.

data-loader  the cache of decoded samples is gone, so each one is decoded again in the training
             process, while the model waits
sync         the loss of each token is read out one by one, thousands of times a step
"""

from __future__ import annotations

import argparse
import random
import time
import zlib
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, TOKENS, FEATURES, CLASSES = 512, 32, 320, 32, 16
HIDDEN = 64
STORED_BYTES = 600_000  # of one sample before compression; decoding it takes about a millisecond
END_AFTER_S = 150.0  # nobody is left to stop it


class Samples(Dataset[Any]):  # type: ignore[misc]  # torch has no types where it is absent
    """Samples stored compressed; decoded ones are cached as long as `cache` is on."""

    def __init__(self) -> None:
        self.cache = True
        noise = bytes(random.Random(0).choices(range(4), k=STORED_BYTES))
        self.stored = zlib.compress(noise, 1)
        self.decoded = torch.randn(SAMPLES, TOKENS, FEATURES)
        self.labels = torch.randint(0, CLASSES, (SAMPLES, TOKENS))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.cache:
            zlib.decompress(self.stored)
        return self.decoded[index], self.labels[index]


def mean_of_scalars(losses: torch.Tensor) -> float:
    """The mean, read out one number at a time."""
    total = 0.0
    for token in range(len(losses)):
        total += losses[token].item()  # the planted fault: thousands of these a step
    return total / len(losses)


def train(fault: str, fault_after_s: float) -> None:
    """Trains until the process is ended."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # steadier steps beside other work on a small machine
    device = "cuda" if torch.cuda.is_available() else "cpu"
    samples = Samples()
    loader = DataLoader(samples, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, planted, began_s = 0, False, time.monotonic()
    while True:
        for inputs, labels in loader:
            logits = model(inputs.to(device)).flatten(0, 1)
            losses = nn.functional.cross_entropy(
                logits, labels.to(device).flatten(), reduction="none"
            )
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            step += 1
            if not planted and fault != "none" and time.monotonic() - began_s > fault_after_s:
                planted = True
                now_ns = time.time_ns()
                print(f"fault planted at step {step}, {now_ns} ns", flush=True)  # noqa: T201 - for the demo
            if planted:
                samples.cache = fault != "data-loader"
                if fault == "sync":
                    mean_of_scalars(losses.detach())
            if time.monotonic() - began_s > END_AFTER_S:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=["data-loader", "sync", "none"], default="none")
    parser.add_argument("--fault-after-s", type=float, default=10.0)
    arguments = parser.parse_args()
    train(arguments.fault, arguments.fault_after_s)
