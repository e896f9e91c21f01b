"""Turns utterances into samples: the interface, and the implementation in the calling thread."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.decoding import UtteranceSound
from app.engine.sound.utterance import UtteranceDecoder
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.stack.prefix_cache import PrefixCache


class UtteranceStream(Protocol):
    """One utterance from final frames of level 0 to sound; see `UtteranceDecoder`."""

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64, once it has ended."""

    @property
    def nar_s(self) -> float:
        """Seconds spent on the finer levels, once it has ended."""

    @property
    def codec_s(self) -> float:
        """Seconds spent on the codec, once it has ended."""

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Samples]:
        """Take final frames ``[n]`` of level 0; yield the samples of every chunk they complete."""

    def drop(self) -> None:
        """Forget it before its end."""


class SoundDecoder(Protocol):
    """Makes sound of utterances. One thread only."""

    def begin(self, inputs: UtteranceInput) -> UtteranceStream:
        """Begin an utterance."""

    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples of codes ``[T, K]``, a chunk at a time, as when they were drawn."""

    def rest(self) -> None:
        """Keep nothing that the next utterance can read again."""

    def close(self) -> None:
        """Let go of what it needs."""


class LocalSoundDecoder:
    """Makes sound in the thread that asks for it."""

    def __init__(self, speech: SpeechModel) -> None:
        """Take a loaded model."""
        self._speech, self._prefixes = speech, PrefixCache(speech.model)

    def begin(self, inputs: UtteranceInput) -> UtteranceDecoder:
        """Begin an utterance: read its prefixes."""
        return UtteranceDecoder(self._speech, inputs, self._prefixes)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples of codes ``[T, K]`` int64, a chunk at a time; the same bits.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        model = self._speech.model
        sound = UtteranceSound(self._speech.decoder, model.config.block_frames)
        yield from sound.pushed(codes.to(model.separator.device), ended=True)

    def rest(self) -> None:
        """Keep nothing that the next utterance can read again."""
        self._prefixes.clear()

    def close(self) -> None:
        """Do nothing."""
