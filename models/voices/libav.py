"""What libav does: it filters sound."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame


AudioSamples = NDArray[np.float32]
"""``[N]``, mono."""


class FilterGraph:
    """A chain of libav's audio filters, for mono samples that come in parts; output lags behind."""

    def __init__(self, filters: Sequence[tuple[str, str]], sample_rate_hz: int) -> None:
        from av.filter import Graph

        self._graph = Graph()
        self._graph.threads = 1  # 0 would start one per core, which these filters do not use
        self._rate_hz = sample_rate_hz
        self._samples = 0
        self._tick = Fraction(1, sample_rate_hz)
        source = self._graph.add_abuffer(
            format="flt", sample_rate=sample_rate_hz, layout="mono", time_base=self._tick
        )
        nodes = [source, *(self._graph.add(name, arguments) for name, arguments in filters)]
        nodes.append(self._graph.add("aformat", "sample_fmts=flt:channel_layouts=mono"))
        nodes.append(self._graph.add("abuffersink"))
        self._graph.link_nodes(*nodes).configure()

    def frames(self, samples: AudioSamples | None) -> "Iterator[AudioFrame]":
        """Filter samples, None at their end; yield the frames that are complete."""
        import av

        if samples is None:
            self._graph.push(None)
        elif len(samples):
            flat = np.ascontiguousarray(samples, np.float32)[None]
            frame = av.AudioFrame.from_ndarray(flat, format="flt", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts = self._samples
            frame.time_base = self._tick
            self._samples += len(samples)
            self._graph.push(frame)
        while True:
            try:
                filtered = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            assert isinstance(filtered, av.AudioFrame)
            yield filtered

    def push(self, samples: AudioSamples | None) -> AudioSamples:
        """Filter samples ``[n]``, None at their end; return those ``[m]`` that are complete."""
        parts = [frame.to_ndarray()[0] for frame in self.frames(samples)]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    def close(self) -> AudioSamples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        return self.push(None)
