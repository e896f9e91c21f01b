"""From level 0 to sound, while level 0 goes on: the finer levels, then the codec."""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.decoding import UtteranceSound
from app.engine.sound.finer import finer_levels
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.stack.prefix_cache import PrefixCache


class UtteranceDecoder:
    """One utterance's sound. One thread only, but not that of the AR.

    However the frames come, codes and samples are the same bit for bit: what is computed together
    is what the chunk plan puts together.

    Attributes:
        nar_s: Seconds spent on the finer levels.
        codec_s: Seconds spent on the codec.
    """

    def __init__(self, speech: SpeechModel, inputs: UtteranceInput, prefixes: PrefixCache) -> None:
        """Read the prefixes, so that the first frames need not wait for it.

        Args:
            speech: Model and codec, on the device to use.
            inputs: What is spoken.
            prefixes: Where what is shared comes from.
        """
        started_s = perf_counter()
        model, codebooks = speech.model, speech.codec.quantizer.codebooks
        self._finer = finer_levels(model, codebooks, inputs, prefixes)
        self._sound = UtteranceSound(speech.decoder, model.config.block_frames)
        self._codes: list[Tensor] = []
        self.nar_s = perf_counter() - started_s
        self.codec_s = 0.0

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64: all that was drawn, and level 0."""
        return torch.cat(self._codes) if self._codes else self._finer.nothing

    @torch.inference_mode()
    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Samples]:
        """Take the next final frames and yield the samples ``[N]`` of every chunk they complete.

        To be read to its end, though other utterances may be voiced in between.

        Args:
            codes: ``[n]`` int64 of level 0, anywhere; none of them will be taken back.
            ended: None will follow.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        started_s = perf_counter()
        codes = codes.to(self._finer.nothing.device)
        for drawn in self._finer.push(codes, ended=ended):
            self.nar_s += perf_counter() - started_s
            self._codes.append(drawn)
            yield self._decode(drawn)
            started_s = perf_counter()
        self.nar_s += perf_counter() - started_s
        if ended:
            yield self._decode(self._finer.nothing, ended=True)

    def drop(self) -> None:
        """Do nothing: what nobody holds is gone."""

    def _decode(self, codes: Tensor, *, ended: bool = False) -> Samples:
        started_s = perf_counter()
        samples = self._sound.push(codes, ended=ended)
        self.codec_s += perf_counter() - started_s
        return samples
