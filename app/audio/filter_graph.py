"""Filters of libav over mono sound that comes in pieces."""

from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from av.filter import Graph

from app.engine.job import Samples


class FilterGraph:
    """Filters one after the other. What comes out lags behind what goes in."""

    def __init__(self, filters: Sequence[tuple[str, str]], sample_rate_hz: int) -> None:
        """Begin before the first sample.

        Args:
            filters: The name of each, and its arguments as libav writes them.
            sample_rate_hz: Of what goes in and comes out.
        """
        self._graph = Graph()
        self._graph.threads = 1  # 0 starts one a core, for filters that have no use for them
        self._rate_hz, self._samples = sample_rate_hz, 0
        self._tick = Fraction(1, sample_rate_hz)
        source = self._graph.add_abuffer(
            format="flt", sample_rate=sample_rate_hz, layout="mono", time_base=self._tick
        )
        places = [source, *(self._graph.add(name, arguments) for name, arguments in filters)]
        places.append(self._graph.add("aformat", "sample_fmts=flt:channel_layouts=mono"))
        places.append(self._graph.add("abuffersink"))
        self._graph.link_nodes(*places).configure()

    def push(self, samples: Samples) -> Samples:
        """Take samples ``[n]`` and return those ``[m]`` that are certain."""
        if len(samples):
            flat = np.ascontiguousarray(samples, np.float32)[None]
            frame = av.AudioFrame.from_ndarray(flat, format="flt", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts, frame.time_base = self._samples, self._tick
            self._samples += len(samples)
            self._graph.push(frame)
        return self._ready()

    def close(self) -> Samples:
        """Return the rest ``[m]``; nothing may be pushed after."""
        self._graph.push(None)
        return self._ready()

    def _ready(self) -> Samples:
        parts = [np.zeros(0, np.float32)]
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return np.concatenate(parts)
            assert isinstance(frame, av.AudioFrame)
            parts.append(frame.to_ndarray()[0])
