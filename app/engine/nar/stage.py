"""Decodes utterances to samples, in the calling thread."""

import weakref
from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter

import torch

from app.engine.memory import prefix_bytes
from app.engine.nar.alignment import UtteranceAlignment
from app.engine.nar.chunks import chunk_blocks
from app.engine.nar.graph_runner import NarGraphRunner
from app.engine.nar.state import NarState
from app.engine.nar.utterance_decoder import UtteranceDecoder
from app.engine.utterance import UtteranceSpec
from gpu.graphs import device_lock
from models.checkpoints.sources import SpeechModel
from models.config import BOS_ID, EOS_ID
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from samplers.knobs.params import SamplingParams


class NarStage:
    """Decodes utterances to samples; on a GPU chunks of several at once. One thread only."""

    def __init__(
        self,
        speech: SpeechModel,
        get_pool: Callable[[], PagePool] | None = None,
        capture: Callable[[SpeechModel, PagePool], NarGraphRunner] | None = None,
    ) -> None:
        self._speech = speech
        self._capture = capture
        self._device = speech.model.separator.device
        self._get_pool = get_pool if speech.model.hides_text(1) else None
        # For keys and values of all utterances; None if each has its own, or has none
        self.pool: PagePool | None = None
        # Makes chunks of several utterances; None if each is made by itself
        self.captured: NarGraphRunner | None = None
        self._prefixes = PrefixCache(speech.model)
        self.allocate()

    def ready(self) -> None:
        """Prepare for a GPU what its libraries take long for; see `warm_up`."""
        if self._speech.model.separator.is_cuda:
            self.warm_up()

    def begin(self, inputs: UtteranceSpec, kept_levels: int | None = None) -> UtteranceDecoder:
        """Begin an utterance whose level 0 is being sampled: prefill its prefixes.

        ``kept_levels`` is how many levels its codes have, if all of them are kept ones.
        """
        with device_lock(self._device):
            started_s = perf_counter()
            self.allocate()
            speech = self._speech
            prefixes = self._prefixes
            captured = self.captured
            read = None if captured is None else captured.prefixes
            fits = captured is not None and inputs.positions <= captured.columns
            codebooks = speech.codec.quantizer.codebooks
            levels = NarState(speech.model, codebooks, inputs, prefixes, read, kept_levels)
            alignment = None
            if inputs.aligned:
                own = captured.aligned if captured is not None and fits else None
                alignment = UtteranceAlignment(speech.model, inputs, prefixes, own)
            utterance = UtteranceDecoder(speech, levels, alignment, self._make)
            if captured is not None and fits:
                utterance.stream = captured.streams.take()
                if utterance.stream is not None:
                    weakref.finalize(utterance, captured.streams.give, utterance.stream)
            utterance.spent_s = perf_counter() - started_s
            return utterance

    @property
    def chunks_at_once(self) -> int:
        """The most chunks that are made together."""
        return 1 if self.captured is None else self.captured.most

    def make_together(self, utterances: Sequence[UtteranceDecoder]) -> Sequence[UtteranceDecoder]:
        """Make the next chunk of the first, most urgent utterance, and of others that fit.

        Returns those whose chunks were made, or failed; none if the first is made by itself.
        """
        if self.captured is None or utterances[0].chunk is None:
            return ()
        with device_lock(self._device):
            return self.captured.make(utterances)

    def warm_up(self) -> None:
        """Decode chunks of every length in the calling thread."""
        frames = sum(islice(chunk_blocks(), 5)) * self._speech.model.config.block_frames + 1
        inputs = UtteranceSpec([BOS_ID, EOS_ID], SamplingParams(), 0, 0, frames)
        utterance = self.begin(inputs)
        utterance.stream = None
        utterance.feed(torch.zeros(frames, dtype=torch.int64), ended=True)
        for _ in utterance:
            pass

    def clear_cache(self) -> None:
        """Free the keys and values that utterances share, and let go of the pool."""
        if self.captured is not None:
            self.captured.close()
        self._prefixes = PrefixCache(self._speech.model)
        self.pool = None
        self.captured = None

    def close(self) -> None:
        """Do nothing: what is held here is garbage collected."""

    def _make(self, utterance: UtteranceDecoder) -> None:
        with device_lock(self._device):
            if not self.make_together([utterance]):
                utterance.make()

    def allocate(self) -> None:
        """Get the pool, and capture the graphs over it, where that is wanted and not done."""
        if self.pool is None and self._get_pool is not None:
            self.pool = self._get_pool()
            model = self._speech.model
            size = self.pool.pages * self.pool.page_bytes
            _, kept_bytes = prefix_bytes(model.config, size)
            self._prefixes = PrefixCache(model, max_bytes=kept_bytes, new_cache=self.pool.new_cache)
            if self._capture is not None:
                self.captured = self._capture(self._speech, self.pool)
