"""Level-0 decoding of many streams on any device without jobs: the cost of the bare loop.

Eager: a loop that launches every operator, as the service draws what is not recorded. Recorded:
the rows and the step of the service, `app.engine.level_0.recorded`, with the host's work on them.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from app.engine.level_0.hypothesis import Condition, Hypothesis, StackOutput
from app.engine.level_0.recorded.decode_graph import DecodeGraph
from app.engine.level_0.recorded.runner import Launched, RecordedRows
from app.engine.utterance import UtteranceInput
from models.cuda.graphs import Recorder
from models.stack.paged_cache import PAGE, PagePool
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams


class Decoder(ABC):
    """Decodes a fixed number of streams, which share one cache."""

    def __init__(self, model: Valle, cache: SlotCache) -> None:
        """Use a model and an empty cache, on the same device."""
        self._model, self._cache = model, cache

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
        stack, at = self._model.transformer, torch.arange(prefixes.shape[1], device=prefixes.device)
        for slot in range(len(prefixes)):
            self._cache.rewind(slot, 0)
        hidden = torch.cat([
            stack.extend(prefix, at, self._cache, slot, at)[-1:]
            for slot, prefix in enumerate(prefixes)
        ])
        params = SamplingParams(temperature=0.0 if greedy else 1.0)
        return self._draw(hidden, len(at), frames, params)

    @abstractmethod
    def _draw(self, hidden: Tensor, length: int, frames: int, params: SamplingParams) -> Tensor:
        """Draw all codes, given the stack's output ``[B, D]`` at the end of the prefixes."""


class EagerDecoder(Decoder):
    """Launches every operator; codes stay on the device until the end."""

    def __init__(self, model: Valle, streams: int, capacity: int) -> None:
        """Allocate the cache: ``capacity`` positions for each stream."""
        super().__init__(model, model.new_cache(streams, capacity))

    def _draw(self, hidden: Tensor, length: int, frames: int, params: SamplingParams) -> Tensor:
        model, device, streams = self._model, hidden.device, range(len(hidden))
        stop = model.config.stop_token
        sampler = ArSampler(stop_token=stop, vocab_size=stop + 1, device=device)
        for seed in streams:
            sampler.join(params, seed, max_frames=frames)
        codes = torch.empty(len(hidden), frames, dtype=torch.int64, device=device)
        positions = torch.arange(length + frames, device=device)
        for frame in range(frames):
            codes[:, frame] = drawn = sampler.step(model.logits(hidden, 0))
            embeddings = model.embed_response(drawn[:, None], 0)
            at = positions[length + frame].expand(len(hidden))
            hidden = model.transformer.step(embeddings, at, self._cache, streams)
        return codes.cpu()


class RecordedDecoder(Decoder):
    """Plays the recorded step, and reads the one before meanwhile."""

    def __init__(self, model: Valle, streams: int, capacity: int) -> None:
        """Record the steps for ``capacity`` positions of each stream."""
        recorder, weight = Recorder(model.separator.device), model.separator
        pages = streams * math.ceil(capacity / PAGE)
        pool = PagePool(model.config, pages, dtype=weight.dtype, device=weight.device)
        self._graph = DecodeGraph(model, pool, streams, capacity, record=recorder.record)
        super().__init__(model, self._graph.cache)

    def _draw(self, hidden: Tensor, length: int, frames: int, params: SamplingParams) -> Tensor:
        rows, stop = RecordedRows(self._graph), self._model.config.stop_token
        for seed, row in enumerate(hidden):
            inputs = UtteranceInput([], params, seed, 0, frames)
            condition = Condition(seed, length, length, StackOutput.without_attention(row[None]))
            rows.add([Hypothesis(inputs, [condition], None, stop_token=stop)], inputs)
        drawn = tuple(rows.hypotheses)
        flying = _launched(rows)
        while flying is not None:
            ended = len(drawn[0].codes) + 1 == frames
            ahead = None if ended else _launched(rows)
            results = self._graph.results(flying.ticket)[:, 0].astype(int).tolist()
            for hypothesis, code in zip(drawn, results, strict=False):
                hypothesis.append(code)
            flying = ahead
        rows.remove(drawn)
        return torch.tensor([hypothesis.codes for hypothesis in drawn])


def _launched(rows: RecordedRows) -> Launched | None:
    for hypothesis in rows.hypotheses:
        rows.make_room(hypothesis)
    return rows.launch()


def decoder(model: Valle, streams: int, capacity: int, *, graphs: bool) -> Decoder:
    """Return a decoder.

    Args:
        model: On the device and of the dtype to use.
        streams: Batch size.
        capacity: Positions reserved for each stream.
        graphs: Whether whole steps are played from CUDA graphs.
    """
    return (RecordedDecoder if graphs else EagerDecoder)(model, streams, capacity)
