"""The finer levels of models whose frames all see each other: passes over several utterances.

A sequence is rows of numbers, so that a recording can read it: its frames come first, then its
prefix, then padding. With such a mask the order of a sequence does not matter, as every position
says itself where it stands; so frame i is column i in all sequences, whatever their prefixes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.stack.fixed_whole import WholeLayout
from models.valle import Valle

CODES = -1
"""The mark of a position that stands for codes: of the prompt, or of a frame."""


class NumberedPrefix(NamedTuple):
    """A prefix as numbers; what `Valle.prefix` embeds.

    Attributes:
        marks: ``[S]`` int64: a row of `WholePasses.marks`, or `CODES` of the prompt.
        positions: ``[S]`` int64.
        start: Position of response frame 0.
    """

    marks: NDArray[np.int64]
    positions: NDArray[np.int64]
    start: int

    @property
    def prompted(self) -> NDArray[np.bool_]:
        """``[S]``, which positions are the prompt's."""
        return self.marks == CODES


class _Marks(NamedTuple):
    """Where each kind of mark begins in the table."""

    phonemes: int
    languages: int
    separator: int
    levels: int


def number_prefix(
    model: Valle, phoneme_ids: Sequence[int], *, language: int = 0, prompt_frames: int = 0
) -> NumberedPrefix:
    """Return the numbers of a prefix; level stands for itself, see `WholePasses.embed`.

    Args:
        model: Whose segments they are.
        phoneme_ids: Including BOS and EOS.
        language: Index into ``config.languages``.
        prompt_frames: Frames of the voice prompt.
    """
    config, first = model.config, _first_marks(model)
    language = min(language, model.languages.num_embeddings - 1)
    segments = {
        "lang": [first.languages + language],
        "level": [first.levels],
        "phn": [first.phonemes + one for one in phoneme_ids],
        "prom": [CODES] * prompt_frames,
    }
    marks, positions = list[int](), list[int]()
    for name in config.segments[:-1]:
        if segment := segments[name]:
            marks += [*segment, first.separator]
            positions += range(len(segment) + 1)
    if config.unified_positions:
        positions = [*range(len(marks))]
    start = len(marks) if config.unified_positions else 0
    return NumberedPrefix(np.array(marks), np.array(positions), start)


class WholePasses:
    """Passes of a model's finer levels over whole sequences, in operators of fixed shapes.

    Attributes:
        marks: ``[M, D]``, the embeddings of phonemes, languages, separator and levels.
    """

    def __init__(self, model: Valle) -> None:
        """Copy the embeddings of marks into one table; call in inference mode.

        Args:
            model: With a `full` mask, on the device and in the dtype to use.

        Raises:
            ValueError: It has another mask.
        """
        if model.config.nar_mask != "full":
            raise ValueError(f"passes over the whole need a full mask, not {model.config.nar_mask}")
        self._model = model
        self._stack = model.transformer.fixed_whole()
        self._first = _first_marks(model)
        self.marks = torch.cat([
            model.phonemes.weight, model.languages.weight, model.separator[None],
            model.level.weight,
        ])  # fmt: skip

    def layout(self, positions: Tensor, lengths: Tensor) -> WholeLayout:
        """Lay out sequences; see `FixedWhole.layout`."""
        return self._stack.layout(positions, lengths)

    def embed(self, marks: Tensor, codes: Tensor, frames: Tensor, level: int) -> Tensor:
        """Return the input of a level, ``[B * T, D]``.

        Args:
            marks: ``[B, T]`` int64 of `NumberedPrefix`; frames have `CODES`, padding any other.
            codes: ``[B, T, K]`` int64 of prompt and frames, any valid code elsewhere.
            frames: ``[B, T]`` bool, which positions are frames.
            level: The level to be predicted.
        """
        model, flat = self._model, codes.flatten(0, 1)
        rows = torch.where(marks == self._first.levels, marks + level, marks).clamp(min=0)
        x = self.marks.index_select(0, rows.flatten())
        coded = model.embed_response(flat, level)
        if model.config.max_prompt_frames:
            prompt = model.embed_prompt(flat, level)
            coded = torch.where(frames.reshape(-1, 1), coded, prompt)
        return torch.where((marks == CODES).view(-1, 1), coded, x)

    def logits(self, x: Tensor, layout: WholeLayout, level: int) -> Tensor:
        """Return the logits ``[B, T, V]`` of all positions, those of frames being of use.

        Args:
            x: ``[B * T, D]`` of `embed`.
            layout: Of the sequences.
            level: The level to be predicted.
        """
        logits = self._model.logits(self._stack.run(x, layout), level)
        return logits.view(len(layout.bias), -1, logits.shape[-1])


def _first_marks(model: Valle) -> _Marks:
    phonemes, languages = model.phonemes.num_embeddings, model.languages.num_embeddings
    return _Marks(0, phonemes, phonemes + languages, phonemes + languages + 1)


def padded(prefix: NumberedPrefix, frames: int, first: int, columns: int) -> NDArray[np.int64]:
    """Return marks and positions ``[2, columns]`` of a sequence with its frames.

    Args:
        prefix: Of the sequence.
        frames: How many.
        first: Index of the first of them.
        columns: At least the positions of the sequence.
    """
    row = np.zeros((2, columns), np.int64)
    end = frames + len(prefix.marks)
    row[0, :frames], row[0, frames:end] = CODES, prefix.marks
    row[1, :frames] = np.arange(prefix.start + first, prefix.start + first + frames)
    row[1, frames:end] = prefix.positions
    return row
