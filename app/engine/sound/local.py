"""Decodes utterances to samples: the interface, and the implementation in the calling thread."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.alignment import Decoded
from app.engine.sound.chunks import Chunks, chunk_blocks
from app.engine.sound.decoding import ChunkDecoder
from app.engine.sound.recorded.record import SoundGraph, begin_recorded
from app.engine.sound.recorded.utterance import RecordedUtterance
from app.engine.sound.utterance import UtteranceDecoder
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.config import BOS_ID, EOS_ID
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from samplers.knobs.params import SamplingParams


class UtteranceStream(Protocol):
    """One utterance from level 0 to samples; see `UtteranceDecoder`."""

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64, once it has ended."""

    @property
    def nar_s(self) -> float:
        """Seconds spent on the finer levels, once it has ended."""

    @property
    def codec_s(self) -> float:
        """Seconds spent on the codec, once it has ended."""

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take final frames ``[n]`` of level 0; yield the samples ``[N]`` of what they complete."""

    def cancel(self) -> None:
        """Free what it holds, before its end."""


class SoundDecoder(Protocol):
    """Decodes utterances to samples. One thread only."""

    def begin(self, inputs: UtteranceInput) -> UtteranceStream:
        """Begin an utterance whose level 0 is being drawn."""

    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples ``[N]`` of known codes ``[T, K]``, chunk by chunk."""

    def clear_cache(self) -> None:
        """Free the keys and values that utterances share."""

    def close(self) -> None:
        """Free all that it holds."""


class LocalSoundDecoder:
    """Decodes utterances in the calling thread.

    Attributes:
        pool: The memory for keys and values of all utterances; None if each has its own, or has
            none, as where all frames see each other.
        graph: Makes chunks of several utterances at once; None if each is made by itself.
    """

    def __init__(
        self,
        speech: SpeechModel,
        get_pool: Callable[[], PagePool] | None = None,
        make_graph: Callable[[SpeechModel, PagePool | None], SoundGraph] | None = None,
    ) -> None:
        """Use a loaded model.

        Args:
            speech: The model.
            get_pool: Returns one memory for the keys and values of all utterances; None: each
                utterance has its own, for as long as it may become.
            make_graph: Records what makes the sound, from `warm_up` on; None: nothing is recorded.
        """
        self._speech, self._make_graph = speech, make_graph
        self._get_pool = get_pool if speech.model.config.nar_mask != "full" else None
        self._records = False
        self.pool: PagePool | None = None
        self.graph: SoundGraph | None = None
        self._prefixes = PrefixCache(speech.model)
        self._allocate()

    def _allocate(self) -> None:
        """Get the pool, and make what is recorded over it, where they are wanted and not there."""
        if self.pool is None and self._get_pool is not None:
            self.pool = self._get_pool()
            self._prefixes = PrefixCache(self._speech.model, new_cache=self.pool.new_cache)
        if self.graph is None and self._records and self._make_graph is not None:
            self.graph = self._make_graph(self._speech, self.pool)

    def begin(self, inputs: UtteranceInput) -> UtteranceDecoder | RecordedUtterance:
        """Begin an utterance: prefill its prefixes."""
        self._allocate()
        recorded: RecordedUtterance | None = None
        if self.graph is not None:
            recorded = begin_recorded(self._speech, inputs, self._prefixes, self.graph)
        return recorded or UtteranceDecoder(self._speech, inputs, self._prefixes)

    @property
    def chunks_at_once(self) -> int:
        """The most chunks that are made together."""
        return 1 if self.graph is None else self.graph.most

    def make_together(self, utterances: Sequence[UtteranceStream]) -> Sequence[UtteranceStream]:
        """Make the next chunk of the first of some utterances, and of others along with it.

        Args:
            utterances: The most urgent first.

        Returns:
            Those whose chunks were made, or failed; none if that of the first cannot be recorded.
        """
        waiting = [one for one in utterances if isinstance(one, RecordedUtterance) and one.waits]
        if self.graph is None or not waiting or waiting[0] is not utterances[0]:
            return ()
        return waiting[0].make_with(waiting[1:])

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples ``[N]`` of codes ``[T, K]`` int64, chunk by chunk.

        They are the samples of when the codes were drawn, bit for bit.

        Raises:
            GenerationFailed: The samples are not finite.
        """
        model = self._speech.model
        decoder = ChunkDecoder(self._speech.decoder, model.config.block_frames)
        chunks = Chunks(model.config.block_frames)
        yield from map(decoder.push, chunks.push(codes.to(model.separator.device)))
        yield decoder.push(chunks.rest())
        yield decoder.finish()

    def warm_up(self) -> None:
        """Record what is recorded, and decode chunks of every length in the calling thread."""
        if self._make_graph is not None and self.graph is None:
            self._records = True
            self._allocate()
        frames = sum(islice(chunk_blocks(), 5)) * self._speech.model.config.block_frames + 1
        inputs = UtteranceInput([BOS_ID, EOS_ID], SamplingParams(), 0, 0, frames)
        codes = torch.zeros(frames, dtype=torch.int64)
        for _ in UtteranceDecoder(self._speech, inputs, self._prefixes).push(codes, ended=True):
            pass

    def clear_cache(self) -> None:
        """Free the keys and values that utterances share, and let go of the pool."""
        if self.graph is not None:
            self.graph.close()
        self._prefixes, self.pool, self.graph = PrefixCache(self._speech.model), None, None

    def close(self) -> None:
        """Do nothing: what is held here is garbage collected."""
