"""Level-0 decoding of many streams on any device without the engine: the cost of the bare loop.

The host runs ahead of the device: codes stay there to be fed back and are copied to the host in the
background, so nothing in the loop synchronises.
"""

import torch
from torch import Tensor

from models.cuda.graphs import Recorder
from models.valle import Valle
from samplers.ar.graphs import GraphSampler
from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams

STEPS_PER_COPY = 8


class BatchDecoder:
    """Decodes a fixed number of streams, which share one cache."""

    def __init__(self, model: Valle, streams: int, capacity: int, *, graphs: bool) -> None:
        """Allocate the cache, and capture the step's CUDA graphs if wanted.

        Args:
            model: On the device and of the dtype to use.
            streams: Batch size.
            capacity: Positions reserved for each stream.
            graphs: Whether steps of the stack and the sampler are replayed from CUDA graphs.
        """
        self._model, self._device = model, model.separator.device
        self._slots, self._recorder = range(streams), Recorder(self._device)
        self._graphs = graphs
        self._cache = model.new_cache(streams, capacity)
        if graphs:
            model.transformer.record(self._cache)

    @torch.inference_mode()
    def run(self, prefixes: Tensor, frames: int, *, greedy: bool) -> Tensor:
        """Decode a batch from its prefixes.

        Args:
            prefixes: ``[B, S, D]`` on the device.
            frames: Number of codes a stream.
            greedy: Take the likeliest code; otherwise draw at temperature 1. The stop token is
                banned either way.

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
        copies = []
        for frame in range(frames):
            drawn = sampler.step(model.logits(hidden, 0))
            codes[:, frame] = drawn
            if (frame + 1) % STEPS_PER_COPY == 0 or frame + 1 == frames:
                start = frame // STEPS_PER_COPY * STEPS_PER_COPY
                copies.append(HostCopy(codes[:, start : frame + 1]))
            embeddings = model.embed_response(drawn[:, None], 0)
            at = positions[length + frame].expand(streams)
            hidden = stack.step(embeddings, at, self._cache, self._slots)
        return torch.cat([copy.wait() for copy in copies], 1)

    def _sampler(self, frames: int, *, greedy: bool) -> ArSampler:
        """Return a sampler with one row a stream that never stops."""
        stop, device = self._model.config.stop_token, self._device
        sampler = ArSampler(stop_token=stop, vocab_size=stop + 1, device=device)
        if self._graphs:
            sampler = GraphSampler(
                self._recorder.record, stop_token=stop, vocab_size=stop + 1, device=device
            )
        params = SamplingParams(temperature=0.0 if greedy else 1.0, ban_tokens=(stop,))
        for seed in self._slots:
            sampler.join(params, seed, max_frames=frames)
        return sampler


class HostCopy:
    """An asynchronous copy of a tensor's values to the host."""

    def __init__(self, values: Tensor) -> None:
        """Queue the copy; ``values`` may change afterwards.

        Args:
            values: Of any shape.
        """
        self._event: torch.cuda.Event | None = None
        if not values.is_cuda:
            self._values = values.clone()
            return
        self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._values.copy_(values, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record()

    def wait(self) -> Tensor:
        """Return the values on the host, once they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._values
