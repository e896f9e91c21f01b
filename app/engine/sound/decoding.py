"""From the codes of an utterance to its sound, chunk by chunk."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import Samples
from app.engine.sound.chunks import Chunks
from models.codecs.interface import Codec
from models.codecs.vocos import Vocos


class UtteranceSound:
    """Decodes one utterance while its codes come; the same codes give the same samples.

    They do so bit for bit, however they come: the codec takes them in the chunks of the plan.
    Vocos takes them all together, so that nothing is certain before the end.
    """

    def __init__(self, decoder: Codec | Vocos, block_frames: int) -> None:
        """Begin before the first frame.

        Args:
            decoder: Decodes the codes.
            block_frames: Of the model, for the chunk plan.
        """
        self._stream = decoder.stream()
        self._chunks = Chunks(block_frames)
        # A convolution keeps code for every length that it ever met, megabytes in all.
        self._grain = None if isinstance(decoder, Vocos) else block_frames
        self._frames = 0

    def push(self, codes: Tensor, *, ended: bool = False) -> Samples:
        """Take the next frames and return the samples ``[N]`` that are now certain.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        return np.concatenate([np.zeros(0, np.float32), *self.pushed(codes, ended=ended)])

    @torch.inference_mode()
    def pushed(self, codes: Tensor, *, ended: bool = False) -> Iterator[Samples]:
        """Take the next frames and yield the samples ``[N]`` of every chunk they complete.

        Args:
            codes: ``[n, K]`` int64 on the decoder's device; K may be fewer than its levels.
            ended: None will follow.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        for chunk in self._chunks.push(codes, ended=ended):
            yield _sound(self._decode(chunk))
        if ended:
            yield _sound(self._stream.finish())

    def _decode(self, chunk: Tensor) -> Tensor:
        """Decode a chunk; the last as so many whole blocks, of which the end is cut off.

        The first is left as it is: with reflect padding all of it would sound of what was added.
        """
        lacking = -len(chunk) % self._grain if self._grain and self._frames else 0
        self._frames += len(chunk)
        if not lacking:
            return self._stream.push(chunk)
        filled = torch.cat([chunk, chunk[-1:].expand(lacking, -1)])
        samples = self._stream.push(filled)
        return samples[: len(samples) // len(filled) * len(chunk)]


def _sound(samples: Tensor) -> Samples:
    """Return samples ``[N]`` as they leave the engine.

    Raises:
        GenerationFailed: They are no numbers.
    """
    sound: Samples = samples.float().cpu().numpy()
    if not np.isfinite(sound).all():
        raise GenerationFailed("the codec gave samples that are no numbers")
    return sound
