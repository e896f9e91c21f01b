"""From the codes of an utterance to its samples, chunk by chunk."""

import numpy as np
import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import Samples
from models.codecs.interface import Codec
from models.codecs.vocos import Vocos


class ChunkDecoder:
    """Decodes the codes of one utterance, a chunk at a time.

    The chunks are those of `app.engine.sound.chunks`, so the same codes give the same samples bit
    for bit. Vocos decodes all of them together in `finish`.
    """

    def __init__(self, decoder: Codec | Vocos, block_frames: int) -> None:
        self._stream = decoder.stream()
        # A convolution caches code for every length that it ever had, megabytes in all.
        self._multiple = 1 if isinstance(decoder, Vocos) else block_frames
        self._frames = 0

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Samples:
        """Return the samples ``[N]`` of the next chunk ``[n, K]``, which no later one changes.

        An incomplete chunk must be the last. It is filled up to whole blocks, of whose samples the
        end is cut off; but not if it is the first, all of whose samples would depend on what was
        added with reflect padding.
        """
        if not (frames := len(codes)):
            return np.zeros(0, np.float32)
        lacking = -frames % self._multiple if self._frames else 0
        self._frames += frames
        if lacking:
            codes = torch.cat([codes, codes[-1:].expand(lacking, -1)])
        samples = self._stream.push(codes)
        if lacking:
            samples = samples[: len(samples) // len(codes) * frames]
        return finite(samples.float().cpu().numpy())

    @torch.inference_mode()
    def finish(self) -> Samples:
        """Return the samples ``[N]`` that were held back; nothing can be pushed after."""
        return finite(self._stream.finish().float().cpu().numpy())


def finite(samples: Samples) -> Samples:
    """Return samples ``[N]`` as they are.

    Raises:
        GenerationFailed: They are not finite.
    """
    if not np.isfinite(samples).all():
        raise GenerationFailed("the codec gave samples that are no numbers")
    return samples
