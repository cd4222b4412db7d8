"""What the loops are made of."""

import time

import torch
from torch import nn
from torch.utils.data import Dataset


def new(kind=torch.optim.SGD, **options):
    """A model of one layer, and its optimizer."""
    model = nn.Linear(4, 1)
    return model, kind(model.parameters(), lr=0.01, **options)


def loss(model):
    return model(torch.randn(8, 4)).pow(2).mean()


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


class Samples(Dataset):
    """`count` samples; each takes `seconds`."""

    def __init__(self, count=24, seconds=0.0):
        self.count, self.seconds = count, seconds

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.randn(4)
