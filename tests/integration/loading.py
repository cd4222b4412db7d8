"""A training loop with loader workers that outlive its epochs; argument: how many."""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(256, 64))
loader = DataLoader(data, batch_size=8, num_workers=int(sys.argv[1]), persistent_workers=True)
ends_s = time.monotonic() + 300
while time.monotonic() < ends_s:
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
        time.sleep(0.01)
