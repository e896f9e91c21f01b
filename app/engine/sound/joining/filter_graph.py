"""libav audio filters, applied incrementally to mono samples."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from app.engine.job import Samples


class FilterGraph:
    """A chain of libav filters. Output lags behind input."""

    def __init__(self, filters: Sequence[tuple[str, str]], sample_rate_hz: int) -> None:
        from av.filter import Graph

        self._graph = Graph()
        self._graph.threads = 1  # 0 would start one per core, which these filters do not use
        self._rate_hz, self._samples = sample_rate_hz, 0
        self._tick = Fraction(1, sample_rate_hz)
        source = self._graph.add_abuffer(
            format="flt", sample_rate=sample_rate_hz, layout="mono", time_base=self._tick
        )
        nodes = [source, *(self._graph.add(name, arguments) for name, arguments in filters)]
        nodes.append(self._graph.add("aformat", "sample_fmts=flt:channel_layouts=mono"))
        nodes.append(self._graph.add("abuffersink"))
        self._graph.link_nodes(*nodes).configure()

    def push(self, samples: Samples) -> Samples:
        """Filter samples ``[n]`` and return those ``[m]`` that are complete."""
        import av

        if len(samples):
            flat = np.ascontiguousarray(samples, np.float32)[None]
            frame = av.AudioFrame.from_ndarray(flat, format="flt", layout="mono")
            frame.sample_rate = self._rate_hz
            frame.pts, frame.time_base = self._samples, self._tick
            self._samples += len(samples)
            self._graph.push(frame)
        return self._pull()

    def close(self) -> Samples:
        """Return the remaining samples ``[m]``; nothing may be pushed after."""
        self._graph.push(None)
        return self._pull()

    def _pull(self) -> Samples:
        import av

        parts = [np.zeros(0, np.float32)]
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return np.concatenate(parts)
            assert isinstance(frame, av.AudioFrame)
            parts.append(frame.to_ndarray()[0])
