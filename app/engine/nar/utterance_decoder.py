"""One utterance from level 0 to samples: the NAR levels, then the codec."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from app.engine.core import AudioChunk
from app.engine.errors import GenerationFailed
from app.engine.nar.alignment import UtteranceAlignment
from app.engine.nar.chunks import Window, chunks_of
from app.engine.nar.state import NarState
from app.engine.results import Alignment, Samples
from app.engine.utterance import TextGrowth
from models.checkpoints.sources import SpeechModel
from models.codecs.vocos import Vocos


def finite(samples: Samples) -> Samples:
    """Return samples ``[N]`` as they are; raises GenerationFailed if they are not finite."""
    if not np.isfinite(samples).all():
        raise GenerationFailed("the codec gave samples that are no numbers")
    return samples


class UtteranceDecoder(Iterator[AudioChunk]):
    """Decodes one utterance while its level 0 is sampled. One thread only, but not that of the AR.

    Codes and samples do not depend on how the frames come, to the bit: the chunks that are computed
    together are a function of the frame index.

    Attributes:
        stream: What a graph knows its codec's state by; None if it is not captured.
        spent_s: Seconds of work that its next sound will tell of.
    """

    def __init__(
        self,
        speech: SpeechModel,
        levels: NarState,
        alignment: UtteranceAlignment | None,
        make: Callable[["UtteranceDecoder"], object],
    ) -> None:
        self.levels = levels
        self.spent_s = 0.0
        self.stream: int | None = None
        self._alignment = alignment
        self._make = make
        block = speech.model.config.block_frames
        self._rate_hz = speech.codec.config.sample_rate_hz
        self._stream = speech.decoder.stream()
        self._decoded_frames = 0  # frames that it has
        self._whole = isinstance(speech.decoder, Vocos)
        # A convolution caches code for every length that it ever had, megabytes in all.
        self._multiple = 1 if self._whole else block
        self._chunks = chunks_of(block)
        self._work = deque[Window]()
        self._ended = False
        self._made: deque[AudioChunk | Exception] = deque()

    def feed(self, codes: Tensor, ended: bool, grown: Sequence[TextGrowth] = ()) -> None:
        """Take the next final frames ``[n]`` int64 of level 0; ``ended``: they are the last.

        ``grown`` is what more of the text they were drawn with.

        They are cut at once, so that chunks can be made with those of other utterances before they
        are asked for.
        """
        self._work += self.levels.cut(codes.cpu(), ended=ended, grown=grown)
        if self._alignment is not None:
            self._alignment.growths += grown
        self._ended = ended

    def __next__(self) -> AudioChunk:
        """Return what the frames become next; it stops until there are more of them."""
        if not self._made:
            if not self._work:
                raise StopIteration
            self._make(self)
        made = self._made.popleft()
        if isinstance(made, Exception):
            raise made
        return made

    @property
    def chunk(self) -> Window | None:
        """Its next chunk; None if there is none that a graph can make."""
        if self.stream is None or not self._work:
            return None
        work = self._work[0]
        return work if work.end > work.start else None

    def close(self) -> None:
        """Do nothing: what is held here is garbage collected."""

    @torch.inference_mode()
    def make(self) -> None:
        """Sample and decode what comes next, by itself."""
        started_s = perf_counter()
        self.levels.sample(self._work.popleft())
        sampled_s = perf_counter()
        self.spent_s += sampled_s - started_s
        chunks = self._complete()
        samples = self._decoded(chunks)
        made = self._chunk_of(torch.cat([self.levels.codes[:0], *chunks]), chunks, samples)
        made.codec_s = perf_counter() - sampled_s
        self._made.append(made)

    def take(self, codes: Tensor, samples: Callable[[], Samples]) -> None:
        """Take the next chunk of a graph: codes ``[n, count]`` and samples ``[N]``."""
        self._work.popleft()
        self.levels.advance(codes)
        try:
            chunks = self._complete()
            # What decodes an utterance as a whole is no part of a graph.
            parts = self._decoded(chunks) if self._whole else [samples()]
            self._made.append(self._chunk_of(codes, chunks, parts))
        except Exception as error:  # of this utterance alone
            self._made.append(error)

    def fail(self, error: Exception) -> None:
        """Raise an error instead of the next chunk."""
        self._work.clear()
        self._made.append(error)

    def _complete(self) -> list[Tensor]:
        """Return the chunks ``[n, count]`` of the codec that are new."""
        codes = self.levels.codes
        windows = self._chunks.up_to(len(codes), ended=self._ended and not self._work)
        # Each of its own memory: where it lies must not depend on how the frames came.
        return [codes[one.start : one.end].clone() for one in windows]

    @torch.inference_mode()
    def _decoded(self, chunks: Sequence[Tensor]) -> list[Samples]:
        """Return the samples of the codec's next chunks, and with the last what it held back."""
        samples = [self._sound(chunk) for chunk in chunks]
        if self._ended and not self._work:
            samples.append(finite(self._stream.finish().float().cpu().numpy()))
        return samples

    def _sound(self, codes: Tensor) -> Samples:
        """Return the samples ``[N]`` of the codec's next chunk ``[n, K]``."""
        # An incomplete chunk, the last, is filled up to whole blocks, of whose samples the end is
        # cut off; but not if it is the first, all of whose samples would depend on what was added
        # with reflect padding.
        frames = len(codes)
        lacking = -frames % self._multiple if self._decoded_frames else 0
        self._decoded_frames += frames
        if lacking:
            codes = torch.cat([codes, codes[-1:].expand(lacking, -1)])
        samples = self._stream.push(codes)
        if lacking:
            samples = samples[: len(samples) // len(codes) * frames]
        return finite(samples.float().cpu().numpy())

    def _chunk_of(
        self, codes: Tensor, chunks: Sequence[Tensor], samples: Sequence[Samples]
    ) -> AudioChunk:
        """Return what codes ``[n, count]`` became; each of their chunks is aligned by itself."""
        sound = np.concatenate([np.zeros(0, np.float32), *samples])
        made = AudioChunk(sound, self._rate_hz, decoded=codes.cpu().numpy().astype(np.int16))
        made.nar_s = self.spent_s
        self.spent_s = 0.0
        if self._alignment is not None:
            parts = [self._alignment.push(one[:, 0]) for one in (self.levels.codes[:0], *chunks)]
            made.alignment = Alignment(*(np.concatenate(one) for one in zip(*parts, strict=True)))
        return made
