"""Has services do on a CPU what they do on a GPU."""

from typing import Any

import pytest
import torch

from app.engine.backend import capturers, synthesizer
from app.engine.memory import Memory
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.engine.nar.stage import NarStage
from models.config import KvCacheDtype

CPU = torch.device("cpu")


def on_a_gpu(
    patch: pytest.MonkeyPatch,
    capturer: Any,
    *,
    kept: KvCacheDtype = "auto",
    pool_bytes: int = 8 << 20,
) -> None:
    """Have services do on the CPU what they do on a GPU, with few sizes of graphs."""

    def captured(_: Any, speech: Any, pool: Any) -> NarGraphRunner:
        sizes = ChunkSizes(rows=(2,), columns=512, streams=9)
        return NarGraphRunner(speech, pool, capturer(CPU).capture, sizes)

    patch.setattr(synthesizer, "memory_of", lambda model, *_: Memory(model, pool_bytes, kept))
    patch.setattr(capturers, "GraphCapturer", lambda device, **_: capturer(device))
    patch.setattr(synthesizer, "capture_chunks", captured)
    patch.setattr(NarStage, "ready", NarStage.warm_up)
