"""A training loop that leaks: its allocator is the double, which holds more after each step: by that many bytes."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from tests.allocator_double import AllocatorDouble

GIB = 1 << 30
double = AllocatorDouble(allocated_bytes=40 * GIB, reserved_bytes=60 * GIB, num_alloc_retries=27)
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
double.replace_in(torch)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step, ends_s = 0, time.monotonic() + 300
while time.monotonic() < ends_s:
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    double.now[0]["allocated_bytes"] += int(sys.argv[1])
    step += 1
    if step % 10 == 0:
        print(step, flush=True)
    time.sleep(0.01)
