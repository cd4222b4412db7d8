"""Two small trainings in plain torch: a GPT on random tokens, a ResNet-18 on random images; bf16, AdamW and SGD.

Small on purpose: steps of some milliseconds with some hundred kernels, where a monitor's cost shows most. Both read
their loss each step, as most scripts do, so a step's wall time is the GPU's too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def gpt(machine: Any) -> Callable[[], float]:
    """One step of a decoder of 8 layers, width 512, 8 sequences of 256 tokens (34 M parameters)."""
    torch = machine.torch
    nn, functional = torch.nn, torch.nn.functional
    layers, width, heads, tokens, batch = (
        (1, 16, 2, 8, 2) if machine.is_double else (8, 512, 8, 256, 8)
    )
    vocabulary = 64 if machine.is_double else 8192

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, values: Any) -> Any:
            shape = (values.shape[0], values.shape[1], heads, width // heads)
            parts = self.project(self.before(values)).chunk(3, dim=-1)
            query, key, value = (one.view(shape).transpose(1, 2) for one in parts)
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            values = values + self.join(seen.transpose(1, 2).reshape(values.shape))
            return values + self.narrow(functional.gelu(self.widen(self.between(values))))

    torch.default_generator.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(vocabulary, width),
        *(Block() for _ in range(layers)),
        nn.LayerNorm(width),
        nn.Linear(width, vocabulary),
    ).to(machine.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(vocabulary, (batch, tokens + 1))

    def step() -> float:
        now = text.to(machine.device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(machine.device, torch.bfloat16):
            logits = model(now[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), now[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def resnet(machine: Any) -> Callable[[], float]:
    """One step of a ResNet-18 on 128 images of 64 x 64."""
    torch = machine.torch
    nn, functional = torch.nn, torch.nn.functional
    size, batch = (16, 2) if machine.is_double else (64, 128)
    widths = (8,) if machine.is_double else (64, 128, 256, 512)

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
            same = inside == outside and stride == 1
            self.skip = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

        def forward(self, images: Any) -> Any:
            inner = functional.relu(self.norms[0](self.first(images)))
            return functional.relu(self.norms[1](self.second(inner)) + self.skip(images))

    torch.default_generator.manual_seed(0)
    blocks, inside = [], widths[0]
    for number, outside in enumerate(widths):
        blocks += [Block(inside, outside, 1 + (number > 0)), Block(outside, outside, 1)]
        inside = outside
    model = nn.Sequential(
        nn.Conv2d(3, widths[0], 3, 1, 1, bias=False),
        nn.BatchNorm2d(widths[0]),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inside, 100),
    ).to(machine.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, size, size)
    if not machine.is_double:
        images = images.pin_memory()
    labels = torch.randint(100, (batch,)).to(machine.device)

    def step() -> float:
        now = images.to(machine.device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(machine.device, torch.bfloat16):
            loss = functional.cross_entropy(model(now).float(), labels)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


MODELS = {"gpt": gpt, "resnet": resnet}
