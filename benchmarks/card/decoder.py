"""Level-0 decoding of many streams on any device without jobs: the cost of the bare loop.

Over slots every operator is launched, and each step read before the next; recorded, the step of a
GPU is played over pages, and read while the next one runs, as the service does.
"""

import math
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.level_0.hypothesis import Condition, Hypothesis
from app.engine.level_0.input_batch import Fetch, InputBatch
from app.engine.level_0.paged_batch import PagedBatch
from app.engine.level_0.slot_batch import SlotBatch
from app.engine.utterance import UtteranceInput
from gpu.graphs import Recorder
from gpu.transfers import Upload
from models.stack.paged_cache import PAGE, PagePool
from models.valle import Valle
from samplers.knobs.params import SamplingParams


class Decoder:
    """Decodes a fixed number of streams, which share one cache."""

    def __init__(self, model: Valle, streams: int, capacity: int) -> None:
        self._model, self._batch = model, self._batch_of(model, streams, capacity)
        self._upload = Upload(self._batch.table.numbers).send

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
        stack, cache = self._model.transformer, self._batch.cache
        at = torch.arange(prefixes.shape[1], device=prefixes.device)
        params = SamplingParams(temperature=0.0 if greedy else 1.0)
        drawn: list[Hypothesis] = []
        for slot, prefix in enumerate(prefixes):
            cache.rewind(slot, 0)
            self._batch.first_hidden[slot] = stack.extend(prefix, at, cache, slot, at)[0][-1]
            inputs = UtteranceInput([], params, slot, 0, frames)
            condition = Condition(slot, len(at), len(at))
            stop = self._model.config.stop_token
            drawn.append(Hypothesis(inputs, [condition], None, None, stop_token=stop))
            self._batch.add(drawn[-1:], inputs)
        flying: deque[Fetch] = deque()
        while any(len(hypothesis) < frames for hypothesis in drawn):
            flying.append(self._launch(drawn))
            if len(flying) <= self._batch.lag:
                continue
            for arrived in flying.popleft()():
                for hypothesis, code in zip(drawn, arrived.codes, strict=True):
                    if len(hypothesis) < frames:
                        hypothesis.append(code)
        self._batch.remove(drawn)
        return torch.tensor([hypothesis.codes for hypothesis in drawn])

    def _launch(self, drawn: Sequence[Hypothesis]) -> Fetch:
        """Queue a step; returns what waits for its results."""
        batch = self._batch
        for hypothesis in drawn:
            batch.make_room(hypothesis)
        if (arrived := batch.draw(drawn)) is not None:
            return arrived
        self._upload(batch.table.host)  # over pages they have been sent
        fed = batch.feed(drawn)
        return batch.fetch(fed, batch.sampler.step(fed.own), None)

    def _batch_of(self, model: Valle, streams: int, capacity: int) -> InputBatch:
        return SlotBatch(model, streams, capacity)


class RecordedDecoder(Decoder):
    """Plays the recorded step, and reads the one before meanwhile."""

    def _batch_of(self, model: Valle, streams: int, capacity: int) -> InputBatch:
        pages, weight = streams * math.ceil(capacity / PAGE), model.separator
        pool = PagePool(model.config, pages, dtype=weight.dtype, device=weight.device)
        return PagedBatch(model, pool, streams, capacity, Recorder(weight.device).record)


def decoder(model: Valle, streams: int, capacity: int, *, graphs: bool) -> Decoder:
    """Return a decoder.

    Args:
        model: On the device and of the dtype to use.
        streams: Batch size.
        capacity: Positions reserved for each stream.
        graphs: Whether whole steps are played from CUDA graphs.
    """
    return (RecordedDecoder if graphs else Decoder)(model, streams, capacity)
