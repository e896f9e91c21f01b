"""One utterance from level 0 to samples: the finer levels, then the codec."""

from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from app.engine.sound.alignment import Alignment, Decoded, UtteranceAlignment
from app.engine.sound.decoding import ChunkDecoder
from app.engine.sound.nar import FinerLevels
from app.engine.sound.nar_cached import CachedLevels
from app.engine.sound.nar_windowed import WindowedLevels
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.prefix_cache import PrefixCache
from models.valle import Valle


def finer_levels(
    model: Valle, codebooks: Tensor, inputs: UtteranceInput, prefixes: PrefixCache
) -> FinerLevels:
    """Return what draws the finer levels of an utterance, by the method that the NAR mask allows.

    Args:
        model: On the device to use.
        codebooks: ``[K, V, D]`` vectors of the codec's codes, for `nar_decision="mean"`.
        inputs: What is spoken.
        prefixes: Cache of the keys and values that utterances share.
    """
    if model.config.nar_mask == "full":
        return WindowedLevels(model, codebooks, inputs)
    return CachedLevels(model, codebooks, inputs, prefixes)


class UtteranceDecoder:
    """Decodes one utterance while its level 0 is drawn. One thread only, but not that of the AR.

    Codes and samples do not depend on how the frames come, to the bit: the chunks that are computed
    together are a function of the frame index.

    Attributes:
        nar_s: Seconds spent on the finer levels.
        codec_s: Seconds spent on the codec.
    """

    def __init__(self, speech: SpeechModel, inputs: UtteranceInput, prefixes: PrefixCache) -> None:
        """Prefill the prefixes, so that the first frames need not wait for that.

        Args:
            speech: Model and codec, on the device to use.
            inputs: What is spoken.
            prefixes: Cache of the keys and values that utterances share.
        """
        started_s = perf_counter()
        model, codebooks = speech.model, speech.codec.quantizer.codebooks
        self._levels = finer_levels(model, codebooks, inputs, prefixes)
        self._decoder = ChunkDecoder(speech.decoder, model.config.block_frames)
        self._chunks: list[Tensor] = []
        self._alignment = UtteranceAlignment(model, inputs, prefixes) if inputs.aligned else None
        self.nar_s = perf_counter() - started_s
        self.codec_s = 0.0

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64: level 0 and the finer levels, as far as they are drawn."""
        return torch.cat([self._levels.no_codes, *self._chunks])

    @torch.inference_mode()
    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take the next frames of level 0 and yield the samples ``[N]`` of what they complete.

        The iterator is to be exhausted before the next call; other utterances may be decoded in
        between.

        Args:
            codes: ``[n]`` int64 of level 0, on any device: final frames.
            ended: Whether they are the last.

        Raises:
            GenerationFailed: The samples are not finite.
        """
        started_s = perf_counter()
        codes = codes.to(self._levels.no_codes.device)
        for chunks in self._levels.push(codes, ended=ended):
            self.nar_s += perf_counter() - started_s
            yield self._decode(chunks)
            started_s = perf_counter()
        rest = [self._levels.rest()] if ended else []
        self.nar_s += perf_counter() - started_s
        if ended:
            yield self._decode(rest, last=True)

    def cancel(self) -> None:
        """Do nothing: what is held here is garbage collected."""

    def _decode(self, chunks: Sequence[Tensor], *, last: bool = False) -> Decoded:
        """Return the samples of some chunks, and after the last chunk those held back."""
        started_s = perf_counter()
        alignment = None if self._alignment is None else self._align(self._alignment, chunks)
        self._chunks += chunks
        samples = [self._decoder.push(chunk) for chunk in chunks]
        if last:
            samples.append(self._decoder.finish())
        self.codec_s += perf_counter() - started_s
        joined = np.concatenate(samples) if samples else np.zeros(0, np.float32)
        return Decoded(joined, torch.cat([self._levels.no_codes, *chunks]), alignment)

    def _align(self, alignment: UtteranceAlignment, chunks: Sequence[Tensor]) -> Alignment:
        """Return the alignment of some chunks, each aligned by itself."""
        parts = [alignment.push(chunk[:, 0]) for chunk in chunks]
        if not parts:
            return alignment.push(self._levels.no_codes[:, 0])
        return Alignment(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
