"""Jobs whose sound another process makes: the same bits, killed or not."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.backend.options import ModelOptions
from app.engine.backend.synthesizer import Synthesizer
from app.engine.job import SpeechJob
from app.engine.playback import Playback
from app.engine.sound.process import SoundProcess
from samplers.knobs.params import SamplingParams

PARAMS = SamplingParams(seed=1, ban_tokens=(512,))


def load(toy: Path, *, sound_process: bool = False) -> Synthesizer:
    return Synthesizer.load(
        ModelOptions(
            toy, "cpu", weights="int8", threads=1, max_text_chars=200, sound_process=sound_process
        )
    )


@pytest.fixture(scope="module")
def remote(toy: Path) -> Iterator[Synthesizer]:
    with closing(load(toy, sound_process=True)) as synthesizer:
        synthesizer.prepare_sound()
        yield synthesizer


def speech(synthesizer: Synthesizer, text: str = "One. [pause:0.2s] Two.") -> Any:
    return synthesizer.speak(synthesizer.plan(SpeechJob("id", text, PARAMS, max_duration_s=1.5)))


def kill(remote: Synthesizer) -> None:
    assert isinstance(remote._sound_decoder, SoundProcess)
    assert remote._sound_decoder.worker.pid is not None
    os.kill(remote._sound_decoder.worker.pid, signal.SIGKILL)


def test_codes_and_samples_are_those_of_one_process(remote, toy):
    ours, theirs = [*speech(load(toy))], [*speech(remote)]
    assert [len(chunk.samples) for chunk in theirs] == [len(chunk.samples) for chunk in ours]
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(other.samples, own.samples)
    assert theirs[-1].result.codes_sha256 == ours[-1].result.codes_sha256
    assert min(theirs[-1].result.timings.nar_s, theirs[-1].result.timings.codec_s) > 0


def test_speeches_and_a_replay_beside_one_that_is_left_go_on_after_a_restart(remote):
    texts = "One. [pause:0.2s] Two.", "Two."
    alone = [[*speech(remote, text)] for text in texts]
    left = speech(remote)
    next(left)
    going = [speech(remote, text) for text in texts]
    going.append(remote.replay(alone[0][-1].result, Playback(0.0)))
    sounds = [[next(one).samples] for one in going]
    kill(remote)
    left.close()
    for one, sound, whole in zip(going, sounds, [*alone, alone[0]], strict=True):
        sound += [chunk.samples for chunk in one]
        np.testing.assert_array_equal(
            np.concatenate(sound), np.concatenate([chunk.samples for chunk in whole])
        )
