"""Our own kernels on a device: each against what it stands for, at the published size."""

import torch

from app.engine.backend.loading import usable_kernels
from lab.benchmarks.card.ar import scale_of
from lab.benchmarks.harness.report import TableRow, Target
from lab.benchmarks.model.published import published_config


def compared(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return a row a kernel: whether it computes what torch's operators do, or why not."""
    scale = scale_of(tiny=tiny)
    kernels = usable_kernels(published_config(layers=scale.layers, width=scale.width), device)
    rows: list[TableRow] = [
        {"kernel": name, "found": kernels.failed.get(name, "as torch")} for name in kernels.tried
    ]
    asked = len(kernels.tried)
    found = asked - len(kernels.failed)
    return rows, [Target("kernels as torch's operators", found, f"{asked}", found == asked)]
