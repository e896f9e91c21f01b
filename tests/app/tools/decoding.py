"""What a listener has of the bytes of a speech."""

from io import BytesIO

import av
import numpy as np
from numpy.typing import NDArray


def decoded(sound: bytes, rate_hz: int | None = None) -> tuple[NDArray[np.float32], int]:
    """Return samples ``[N]`` in [-1, 1] and their rate, as libav's decoder gives them.

    Args:
        sound: A file of any format but pcm.
        rate_hz: Of pcm, which does not tell; None for the rest.
    """
    if rate_hz is not None:
        return np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(2**15), rate_hz
    with av.open(BytesIO(sound), "r") as file:
        stream = file.streams.audio[0]
        flat = av.AudioResampler("flt", "mono", stream.rate)
        frames = [one for frame in file.decode(stream) for one in flat.resample(frame)]
        frames += flat.resample(None)
        parts = [frame.to_ndarray()[0] for frame in frames]
        return np.concatenate([np.zeros(0, np.float32), *parts]), stream.rate
