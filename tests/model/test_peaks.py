"""Peaks by the names that drivers give."""

import pytest

from pymon.model.peaks import peak_flops_per_s


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.5),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362.05),
        ("Tesla V100-SXM2-32GB", 125),
    ],
)
def test_known_ones(name, teraflops):
    assert peak_flops_per_s(name) == teraflops * 1e12


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A10G", "NVIDIA GeForce RTX 4090", "NVIDIA L40", "A1000"]
)
def test_others_are_not_guessed(name):
    assert peak_flops_per_s(name) is None
