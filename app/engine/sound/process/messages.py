"""What the sound process is told, and how it says that there is no more sound."""

from typing import NamedTuple

from torch import Tensor

from app.engine.utterance import UtteranceInput


class Begin(NamedTuple):
    """Begin an utterance under a key."""

    key: int
    inputs: UtteranceInput


class Push(NamedTuple):
    """Take its next final frames of level 0."""

    key: int
    codes: Tensor
    ended: bool


class Decode(NamedTuple):
    """Make sound of codes ``[T, K]`` under a key."""

    key: int
    codes: Tensor


class Next(NamedTuple):
    """Answer with the next samples of a key, or with `End`."""

    key: int


class Drop(NamedTuple):
    """Forget a key."""

    key: int


class End(NamedTuple):
    """All that was pushed is sound; the rest is there if nothing may follow."""

    codes: Tensor | None = None
    nar_s: float = 0.0
    codec_s: float = 0.0
