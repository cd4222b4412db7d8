"""A small real training loop for integration tests: prints a line each ten steps, until it is ended.

Arguments: the seconds between steps; after how many it ends, or the file whose coming ends it.
"""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(256, 64)), batch_size=8)
pause_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.01
until = sys.argv[2] if len(sys.argv) > 2 else "20000"
steps_max, end = (int(until), None) if until.isdigit() else (sys.maxsize, Path(until))
step, ends_s = 0, time.monotonic() + 300
while step < steps_max and time.monotonic() < ends_s:
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
        step += 1
        time.sleep(pause_s)
        if step % 10 == 0:
            print(step, flush=True)
        if step >= steps_max or (end is not None and end.exists()):
            sys.exit()
