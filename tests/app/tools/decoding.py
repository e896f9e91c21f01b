"""What a listener has of the bytes of a speech."""

from io import BytesIO

import av
import numpy as np
from numpy.typing import NDArray


def decoded(
    sound: bytes, rate_hz: int | None = None, form: str = "pcm"
) -> tuple[NDArray[np.float32], int]:
    """Return samples ``[N]`` in [-1, 1] and their rate, as libav's decoder gives them.

    Args:
        sound: A file.
        rate_hz: Of pcm, ulaw and alaw, which do not tell; None for the rest.
        form: Which of these three it is.
    """
    if rate_hz is not None and form in {"ulaw", "alaw"}:
        raw = {"ulaw": "mulaw", "alaw": "alaw"}[form]
        with av.open(BytesIO(sound), "r", raw, options={"sample_rate": f"{rate_hz}"}) as file:
            parts = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
        return np.concatenate([np.zeros(0), *parts]).astype(np.float32) / np.float32(2**15), rate_hz
    if rate_hz is not None:
        return np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(2**15), rate_hz
    with av.open(BytesIO(sound), "r") as file:
        stream = file.streams.audio[0]
        flat = av.AudioResampler("flt", "mono", stream.rate)
        frames = [one for frame in file.decode(stream) for one in flat.resample(frame)]
        frames += flat.resample(None)
        parts = [frame.to_ndarray()[0] for frame in frames]
        return np.concatenate([np.zeros(0, np.float32), *parts]), stream.rate
