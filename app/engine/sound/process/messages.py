"""The messages to the sound process, and its answer that a key has no more samples."""

from typing import NamedTuple

from torch import Tensor

from app.engine.utterance import UtteranceInput


class Begin(NamedTuple):
    """Begin an utterance under a key."""

    key: int
    inputs: UtteranceInput


class Push(NamedTuple):
    """Take the next final frames ``[n]`` of its level 0."""

    key: int
    codes: Tensor
    ended: bool


class Decode(NamedTuple):
    """Decode codes ``[T, K]`` to samples under a key."""

    key: int
    codes: Tensor


class Next(NamedTuple):
    """Answer with the next samples of a key, or with `End`."""

    key: int


class Cancel(NamedTuple):
    """Free a key."""

    key: int


class End(NamedTuple):
    """All that was pushed is decoded. After the last frames also the codes and the seconds."""

    codes: Tensor | None = None
    nar_s: float = 0.0
    codec_s: float = 0.0
