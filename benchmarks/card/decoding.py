"""Level 0 of many streams on any device, without the engine: what its loop costs at best.

The host runs ahead of the device. Codes stay there to be fed back, and reach the host some steps
later; nothing in the loop asks for them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.cuda.graphs import Recorder
from models.cuda.transfers import Readback
from models.valle import Valle
from samplers.ar.graphs import GraphSampler
from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams

READ_EVERY = 8  # steps


@dataclass(frozen=True)
class Queueing:
    """How a step is queued.

    Attributes:
        graphs: Whether it is recorded and played, the stack's and the sampler's.
        compiler: What fuses its kernels; None: nothing does.
    """

    graphs: bool
    compiler: str | None = None


class Decoding:
    """Streams over one cache, which is recorded once for all of them."""

    def __init__(self, model: Valle, streams: int, capacity: int, queueing: Queueing) -> None:
        """Record what is to be recorded.

        Args:
            model: On the device to use, in the numbers to use.
            streams: How many at once.
            capacity: Positions that each has room for.
            queueing: How a step is queued.
        """
        self._model, self._device = model, model.separator.device
        self._slots, self._recorder = range(streams), Recorder(self._device)
        self._queueing = queueing
        self._cache = model.new_cache(streams, capacity)
        if queueing.graphs:
            model.transformer.record(self._cache, compiler=queueing.compiler)

    @torch.inference_mode()
    def run(self, prefixes: Tensor, frames: int, *, greedy: bool) -> Tensor:
        """Decode.

        Args:
            prefixes: ``[B, S, D]`` on the device.
            frames: How many codes.
            greedy: Or drawn at temperature 1; the stop is banned either way.

        Returns:
            ``[B, frames]`` int64 on the host.
        """
        model, stack, length = self._model, self._model.transformer, prefixes.shape[1]
        streams = len(self._slots)
        sampler = self._sampler(frames, greedy=greedy)
        positions = torch.arange(length + frames, device=self._device)
        causal = positions[:length]
        for slot in self._slots:
            self._cache.rewind(slot, 0)
        hidden = torch.cat([
            stack.extend(prefixes[slot], causal, self._cache, slot, causal)[-1:]
            for slot in self._slots
        ])
        codes = torch.empty(streams, frames, dtype=torch.int64, device=self._device)
        reads = []
        for frame in range(frames):
            drawn = sampler.step(model.logits(hidden, 0))
            codes[:, frame] = drawn
            if (frame + 1) % READ_EVERY == 0 or frame + 1 == frames:
                start = frame // READ_EVERY * READ_EVERY
                reads.append(Readback(codes[:, start : frame + 1]))
            embeddings = model.embed_response(drawn[:, None], 0)
            at = positions[length + frame].expand(streams)
            hidden = stack.step(embeddings, at, self._cache, self._slots)
        return torch.cat([read.wait() for read in reads], 1)

    def _sampler(self, frames: int, *, greedy: bool) -> ArSampler:
        """Return one with a row a stream, which never stops."""
        stop, device = self._model.config.stop_token, self._device
        sampler = ArSampler([], [], stop_token=stop, vocab_size=stop + 1, device=device)
        if self._queueing.graphs:
            sampler = GraphSampler(
                self._recorder.record, stop_token=stop, vocab_size=stop + 1, device=device
            )
        params = SamplingParams(temperature=0.0 if greedy else 1.0, ban_tokens=(stop,))
        for seed in self._slots:
            sampler.join(params, seed, max_frames=frames)
        return sampler
