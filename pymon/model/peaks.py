"""The peak of a GPU's tensor cores: what model FLOPs utilisation is measured against (arXiv 2204.02311)."""

from __future__ import annotations

from typing import Final

# Dense bfloat16 (V100: float16), from NVIDIA's data sheets; figures that are given with sparsity only are halved. The
# first name that stands in the driver's wins. What is not listed is not known.
PEAK_FLOPS_PER_S: Final = (
    ("H200 NVL", 835.5e12),  # H200 Tensor Core GPU data sheet: 1,671 with sparsity
    ("H200", 989.5e12),  # the same: 1,979 with sparsity
    ("H100 NVL", 835.5e12),  # H100 NVL data sheet: 1,671 with sparsity
    ("H100 PCIe", 756.5e12),  # H100 Tensor Core GPU data sheet: 1,513 with sparsity
    ("H100 80GB HBM3", 989.5e12),  # the same, SXM: 1,979 with sparsity
    ("A100", 312e12),  # A100 Tensor Core GPU data sheet, all forms
    ("A30", 165e12),  # A30 Tensor Core GPU data sheet
    ("A10G", None),  # Amazon's own, which NVIDIA's sheet of the A10 does not tell of
    ("A10", 125e12),  # A10 Tensor Core GPU data sheet
    ("L40S", 362.05e12),  # L40S GPU data sheet
    ("L4", 121e12),  # L4 Tensor Core GPU data sheet: 242 with sparsity
    ("V100-SXM2", 125e12),  # V100 Tensor Core GPU data sheet
)


def peak_flops_per_s(name: str) -> float | None:
    """Of a whole GPU of this name, as the driver gives it (`NVIDIA A100-SXM4-80GB`); None where it is not known."""
    words = name.replace("-", " ").split()
    for known, peak in PEAK_FLOPS_PER_S:
        wanted = known.replace("-", " ").split()
        if any(words[at : at + len(wanted)] == wanted for at in range(len(words))):
            return peak
    return None
