"""The audio of an earlier speech once more, decoded from its codes."""

from collections.abc import Iterator
from dataclasses import replace as changed
from time import monotonic

import numpy as np
import torch

from app.engine.job import AudioChunk, Samples, SpeechResult, Timings
from app.engine.playback import Playback
from app.engine.sound.decoder import SoundDecoder
from app.engine.sound.joining.joiner import Joiner
from app.engine.sound.process import SoundProcess


def replay(
    result: SpeechResult,
    decoder: SoundDecoder | SoundProcess,
    playback: Playback,
    sample_rate_hz: int,
) -> Iterator[AudioChunk]:
    """Yield the audio of a speech once more: the same samples, the last chunk with the result."""
    queue_s = monotonic() - playback.submitted_s
    joiner = Joiner(sample_rate_hz, result.params.pause_s)

    def chunk(samples: Samples, result: SpeechResult | None = None) -> AudioChunk:
        playback.add(len(samples) / sample_rate_hz)
        return AudioChunk(samples, sample_rate_hz, result)

    for number, utterance in enumerate(result.utterances):
        samples: Samples = np.zeros(0, np.float32)
        for decoded in decoder.decode(torch.from_numpy(utterance.codes).long()):
            if len(samples):
                yield chunk(samples)
            samples = joiner.push(decoded, utterance.rate)
        last = number + 1 == len(result.utterances)
        samples = np.concatenate([samples, joiner.finish(utterance.pause_after_s, last=last)])
        total_s = monotonic() - playback.submitted_s
        timings = Timings(queue_s, 0.0, 0.0, 0.0, total_s - queue_s, total_s)
        yield chunk(samples, changed(result, timings=timings) if last else None)
