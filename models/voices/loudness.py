"""Integrated loudness by ITU-R BS.1770 (EBU R 128), measured by libav's filter `ebur128`."""

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.filter import Graph

_BLOCK_S: Final = 0.4  # length of a gating block of BS.1770
_SILENT_LUFS: Final = -70.0  # the absolute gate: the filter's result if nothing passes it
_INTEGRATED: Final = "lavfi.r128.I"


def loudness_lufs(samples: NDArray[Any], sample_rate_hz: int) -> float:
    """Return the integrated loudness of mono audio in LUFS, to 0.01; minus infinity for silence.

    Pauses do not count. ``samples`` are ``[N]`` float, finite; less than 0.4 s is repeated to that
    length.
    """
    import av
    from av.filter import Graph

    if not len(samples):
        return -np.inf
    shortest = -(-round(_BLOCK_S * sample_rate_hz) // len(samples))
    peak = max(1.0, float(np.abs(samples).max()))  # the filter measures up to 10 LUFS
    sound = np.ascontiguousarray(np.tile(samples / peak, max(1, shortest)), np.float32)
    graph = Graph()
    graph.threads = 1
    tick = Fraction(1, sample_rate_hz)
    source = graph.add_abuffer(
        format="flt", sample_rate=sample_rate_hz, layout="mono", time_base=tick
    )
    meter = graph.add("ebur128", "metadata=1:framelog=quiet")
    graph.link_nodes(source, meter, graph.add("abuffersink")).configure()
    frame = av.AudioFrame.from_ndarray(sound[None], format="flt", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = sample_rate_hz, 0, tick
    graph.push(frame)
    graph.push(None)
    measured = _last_measurement(graph)
    return measured + 20 * np.log10(peak) if measured > _SILENT_LUFS else -np.inf


def _last_measurement(graph: "Graph") -> float:
    """Return the last of the filter's measurements, of which it makes one every 0.1 s."""
    import av

    measured = _SILENT_LUFS
    while True:
        try:
            frame = graph.pull()
        except (av.error.BlockingIOError, av.error.EOFError):
            return measured
        assert isinstance(frame, av.AudioFrame)
        measured = float(frame.metadata.get(_INTEGRATED, measured))
