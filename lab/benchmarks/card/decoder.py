"""Level-0 decoding of many streams on any device without jobs: the cost of the bare loop.

Over slots every operator is launched, and each step read before the next; captured, the step of a
GPU is replayed over pages, and read while the next one runs, as the service does.
"""

import math
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.ar.eager_runner import EagerRunner
from app.engine.ar.graph_runner import GraphRunner
from app.engine.ar.model_runner import ArModelRunner, Fetch
from app.engine.ar.sequence import ArSequence, GuidanceBranch
from app.engine.utterance import UtteranceSpec
from gpu.graphs import GraphCapturer
from gpu.transfers import Upload
from models.stack.paged_cache import PAGE, PagePool
from models.valle import Valle
from samplers.knobs.params import SamplingParams


class Decoder:
    """Decodes a fixed number of streams, which share one cache."""

    def __init__(self, model: Valle, streams: int, capacity: int) -> None:
        self._model = model
        self._runner = self._runner_of(model, streams, capacity)
        self._upload = Upload(self._runner.table.numbers).send

    @torch.inference_mode()
    def run(self, prefixes: Tensor, frames: int, *, greedy: bool) -> Tensor:
        """Decode a batch from its prefixes.

        Args:
            prefixes: ``[B, S, D]`` on the device.
            frames: Number of codes a stream.
            greedy: Take the likeliest code; otherwise sample at temperature 1. The model must not
                end: what a row samples after its stop would cost less.

        Returns:
            ``[B, frames]`` int64 on the host.
        """
        stack, cache = self._model.transformer, self._runner.cache
        at = torch.arange(prefixes.shape[1], device=prefixes.device)
        params = SamplingParams(temperature=0.0 if greedy else 1.0)
        sampled: list[ArSequence] = []
        for slot, prefix in enumerate(prefixes):
            cache.rewind(slot, 0)
            taps = self._runner.taps
            self._runner.first_hidden[slot] = stack.extend(prefix, at, cache, slot, at, taps)[0][-1]
            inputs = UtteranceSpec([], params, slot, 0, frames)
            condition = GuidanceBranch(slot, len(at), len(at))
            stop = self._model.config.stop_token
            sampled.append(ArSequence(inputs, [condition], None, None, stop_token=stop))
            self._runner.add(sampled[-1:], inputs)
        in_flight: deque[Fetch] = deque()
        while any(len(sequence) < frames for sequence in sampled):
            in_flight.append(self._launch(sampled))
            if len(in_flight) <= self._runner.lag:
                continue
            for arrived in in_flight.popleft()():
                for sequence, code in zip(sampled, arrived.codes, strict=True):
                    if len(sequence) < frames:
                        sequence.append(code)
        self._runner.remove(sampled)
        return torch.tensor([sequence.codes for sequence in sampled])

    def _launch(self, sampled: Sequence[ArSequence]) -> Fetch:
        """Queue a step; returns what waits for its results."""
        runner = self._runner
        for sequence in sampled:
            runner.make_room(sequence)
        if (arrived := runner.sample(sampled)) is not None:
            return arrived
        self._upload(runner.table.host)  # over pages they have been sent
        fed = runner.feed(sampled)
        return runner.fetch(fed, runner.sampler.step(fed.own), None)

    def _runner_of(self, model: Valle, streams: int, capacity: int) -> ArModelRunner:
        return EagerRunner(model, streams, capacity)


class GraphDecoder(Decoder):
    """Plays the captured step, and reads the one before meanwhile."""

    def _runner_of(self, model: Valle, streams: int, capacity: int) -> ArModelRunner:
        pages, weight = streams * math.ceil(capacity / PAGE), model.separator
        pool = PagePool(model.config, pages, dtype=weight.dtype, device=weight.device)
        return GraphRunner(model, pool, streams, capacity, GraphCapturer(weight.device).capture)


def decoder(model: Valle, streams: int, capacity: int, *, graphs: bool) -> Decoder:
    """Return a decoder.

    Args:
        model: On the device and of the dtype to use.
        streams: Batch size.
        capacity: Positions reserved for each stream.
        graphs: Whether whole steps are replayed from CUDA graphs.
    """
    return (GraphDecoder if graphs else Decoder)(model, streams, capacity)
