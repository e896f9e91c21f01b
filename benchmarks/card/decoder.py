"""Level-0 decoding of many streams on any device without jobs: the cost of the bare loop.

Over slots every operator is launched, and each step read before the next; recorded, the step of a
GPU is played over pages, and read while the next one runs, as the service does.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from app.engine.level_0.feed import Arrived, Feed, SlotFeed
from app.engine.level_0.hypothesis import Condition, Hypothesis
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.paged_feed import PagedFeed
from app.engine.utterance import UtteranceInput
from models.cuda.graphs import Recorder
from models.cuda.transfers import Upload
from models.stack.paged_cache import PAGE, PagePool
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import SlotTable
from samplers.knobs.params import SamplingParams


class Decoder:
    """Decodes a fixed number of streams, which share one cache."""

    def __init__(self, model: Valle, streams: int, capacity: int) -> None:
        config, device = model.config, model.separator.device
        table = SlotTable(
            streams, frames=capacity, prompt=0, vocab_size=config.codes + 1, device=device,
            shared=False,
        )  # fmt: skip
        self._upload = Upload(table.numbers).send
        self._model, self._feed = model, self._feed_of(model, table, capacity)
        self._batch = InputBatch(self._feed, ArSampler(table, stop_token=config.stop_token))

    @torch.inference_mode()
    def run(self, prefixes: Tensor, frames: int, *, greedy: bool) -> Tensor:
        """Decode a batch from its prefixes.

        Args:
            prefixes: ``[B, S, D]`` on the device.
            frames: Number of codes a stream.
            greedy: Take the likeliest code; otherwise draw at temperature 1. The model must not
                end: what a row draws after its stop would cost less.

        Returns:
            ``[B, frames]`` int64 on the host.
        """
        stack, cache = self._model.transformer, self._feed.cache
        at = torch.arange(prefixes.shape[1], device=prefixes.device)
        params = SamplingParams(temperature=0.0 if greedy else 1.0)
        drawn: list[Hypothesis] = []
        for slot, prefix in enumerate(prefixes):
            cache.rewind(slot, 0)
            self._feed.first_hidden[slot] = stack.extend(prefix, at, cache, slot, at)[-1]
            inputs = UtteranceInput([], params, slot, 0, frames)
            condition = Condition(slot, len(at), len(at))
            stop = self._model.config.stop_token
            drawn.append(Hypothesis(inputs, [condition], None, stop_token=stop))
            self._batch.add(drawn[-1:], inputs)
        flying: deque[Callable[[], Arrived]] = deque()
        for frame in range(frames + self._feed.lag):
            if frame < frames:
                flying.append(self._launch(drawn))
            if frame >= self._feed.lag:
                for hypothesis, code in zip(drawn, flying.popleft()().codes, strict=True):
                    hypothesis.append(code)
        self._batch.remove(drawn)
        return torch.tensor([hypothesis.codes for hypothesis in drawn])

    def _launch(self, drawn: Sequence[Hypothesis]) -> Callable[[], Arrived]:
        """Queue a step; returns what waits for its results."""
        feed, sampler = self._feed, self._batch.sampler
        for hypothesis in drawn:
            feed.make_room(hypothesis)
        if (arrived := feed.draw(drawn)) is not None:
            sampler.note_drawn()
            return arrived
        sampler.table.send(self._upload)  # the paged feed has sent them
        fed = feed(drawn)
        return feed.fetch(fed, sampler.advance(fed.own).codes, None)

    def _feed_of(self, model: Valle, table: SlotTable, capacity: int) -> Feed:
        return SlotFeed(model, len(table.held), capacity)


class RecordedDecoder(Decoder):
    """Plays the recorded step, and reads the one before meanwhile."""

    def _feed_of(self, model: Valle, table: SlotTable, capacity: int) -> Feed:
        pages, weight = len(table.held) * math.ceil(capacity / PAGE), model.separator
        pool = PagePool(model.config, pages, dtype=weight.dtype, device=weight.device)
        return PagedFeed(model, pool, table, capacity, Recorder(weight.device).record)


def decoder(model: Valle, streams: int, capacity: int, *, graphs: bool) -> Decoder:
    """Return a decoder.

    Args:
        model: On the device and of the dtype to use.
        streams: Batch size.
        capacity: Positions reserved for each stream.
        graphs: Whether whole steps are played from CUDA graphs.
    """
    return (RecordedDecoder if graphs else Decoder)(model, streams, capacity)
