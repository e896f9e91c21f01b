"""Mistakes that a recording forgives, seeded by tests of what is recorded."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.codecs.streaming import DecoderState, StreamTable
from models.cuda.transfers import Download, Upload
from samplers.nar import sample_nar


def baked_frame(patch: pytest.MonkeyPatch) -> None:
    """The noise does not know which frame it is for."""

    def wrong(logits: Tensor, rows: Tensor, at: Tensor, *rest: Any) -> Tensor:
        return sample_nar(logits, rows, at * 0, *rest)

    patch.setattr("app.engine.sound.drawing.sample_nar", wrong)


def stale_stream(patch: pytest.MonkeyPatch) -> None:
    """A stream begins with what the one before left in its row."""
    right = StreamTable.read

    def wrong(table: StreamTable, rows: Tensor, begins: Tensor) -> DecoderState:
        return right(table, rows, torch.zeros_like(begins))

    patch.setattr(StreamTable, "read", wrong)


def lost_state(patch: pytest.MonkeyPatch) -> None:
    """What the codec remembers is not copied out of the recording."""
    patch.setattr(StreamTable, "write", lambda *_: None)


def new_table(patch: pytest.MonkeyPatch) -> None:
    """The host writes into another table than the one that was recorded."""
    right = Upload.__init__

    def wrong(upload: Upload, target: Tensor, *rest: int) -> None:
        right(upload, target.clone(), *rest)

    patch.setattr(Upload, "__init__", wrong)


def unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    """The host reads what was made before the one that has just been queued."""
    right, kept = Download.fetch, dict[int, int]()

    def wrong(download: Download) -> int:
        ticket = right(download)
        return kept.setdefault(id(download), ticket)

    patch.setattr(Download, "fetch", wrong)
