"""Our own kernels on a device: each against what it stands for, at the published size."""

import torch

from lab.benchmarks.card.ar import scale_of
from lab.benchmarks.harness.report import TableRow, Target
from lab.benchmarks.model.published import published_config
from models.cuda.kernels.check import usable
from models.cuda.kernels.operators import NAMES


def compared(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return a row a kernel: whether it computes what torch's operators do, or why not."""
    scale = scale_of(tiny=tiny)
    kernels = usable(published_config(layers=scale.layers, width=scale.width), device)
    rows: list[TableRow] = [
        {"kernel": name, "found": kernels.failed.get(name, "as torch")} for name in NAMES
    ]
    asked, found = len(NAMES), len(kernels.fused)
    return rows, [Target("kernels as torch's operators", found, f"{asked}", found == asked)]
