"""Sound from another process: the same bits, and what happens when it is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from app.engine.backend.synthesizer import Synthesizer
from app.engine.errors import GenerationFailed, WorkerLost
from app.engine.interface import Replay
from app.engine.job import SpeechJob
from app.engine.playback import Playback
from app.engine.sound.process.client import SoundProcess
from models.checkpoints import load_speech_model
from samplers.knobs.params import SamplingParams


def load(toy: Path, *, sound_process: bool = False) -> Synthesizer:
    return Synthesizer.load(
        toy, "cpu", weights="int8", threads=1, max_text_chars=200, sound_process=sound_process
    )


@pytest.fixture(scope="module")
def remote(toy: Path) -> Iterator[Synthesizer]:
    synthesizer = load(toy, sound_process=True)
    synthesizer.prepare_sound()
    yield synthesizer
    synthesizer.close()


def speak(synthesizer: Synthesizer):
    params = SamplingParams(seed=1, ban_tokens=(512,))
    wanted = SpeechJob("id", "One. [pause:0.2s] Two.", params, max_duration_s=1.5)
    return list(
        synthesizer.speak(synthesizer.plan(wanted), queue_s=0.0, on_progress=lambda _: True)
    )


def test_codes_and_samples_are_those_of_one_process(remote, toy):
    ours, theirs = speak(load(toy)), speak(remote)
    assert [len(chunk.samples) for chunk in theirs] == [len(chunk.samples) for chunk in ours]
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(other.samples, own.samples)
    assert theirs[-1].result.codes_sha256 == ours[-1].result.codes_sha256
    assert min(theirs[-1].result.timings.nar_s, theirs[-1].result.timings.codec_s) > 0


def test_a_replay_has_the_samples_of_the_speech(remote):
    spoken = speak(remote)
    again = list(remote.replay(Replay(spoken[-1].result), Playback(0.0)))
    np.testing.assert_array_equal(
        np.concatenate([chunk.samples for chunk in again]),
        np.concatenate([chunk.samples for chunk in spoken]),
    )


def test_utterances_that_are_left_or_side_by_side_do_not_disturb_each_other(remote):
    spoken = speak(remote)
    params = SamplingParams(seed=1, ban_tokens=(512,))
    plan = remote.plan(SpeechJob("id", "One.", params, max_duration_s=1.5))
    left = remote.speak(plan, queue_s=0.0, on_progress=lambda _: True)
    next(left)  # an utterance that has begun
    again = speak(remote)
    left.close()
    np.testing.assert_array_equal(again[-1].samples, spoken[-1].samples)


def test_what_breaks_there_is_raised_here_and_breaks_nothing_else(remote):
    before = speak(remote)
    with pytest.raises(ValueError, match="codes must lie"):
        list(remote._sound_decoder.decode(torch.full((3, 8), 10**6)))
    np.testing.assert_array_equal(speak(remote)[-1].samples, before[-1].samples)


def killed(remote: Synthesizer) -> None:
    assert isinstance(remote._sound_decoder, SoundProcess)
    assert remote._sound_decoder.pid is not None
    os.kill(remote._sound_decoder.pid, signal.SIGKILL)


def test_a_process_that_is_killed_between_two_speeches_is_not_missed(remote):
    before = speak(remote)
    killed(remote)
    np.testing.assert_array_equal(speak(remote)[-1].samples, before[-1].samples)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_speech_goes_on_where_its_process_was_killed(remote, after):
    before, again = speak(remote), []
    params = SamplingParams(seed=1, ban_tokens=(512,))
    wanted = SpeechJob("id", "One. [pause:0.2s] Two.", params, max_duration_s=1.5)
    plan = remote.plan(wanted)
    for chunk in remote.speak(plan, queue_s=0.0, on_progress=lambda _: True):
        again.append(chunk)
        if len(again) == after:
            killed(remote)
    assert [len(chunk.samples) for chunk in again] == [len(chunk.samples) for chunk in before]
    for one, other in zip(before, again, strict=True):
        np.testing.assert_array_equal(other.samples, one.samples)


def test_speeches_side_by_side_all_go_on_after_one_restart(remote):
    params = SamplingParams(seed=1, ban_tokens=(512,))
    plans = [
        remote.plan(SpeechJob(text, text, params, max_duration_s=1.5)) for text in ("One.", "Two.")
    ]
    alone = [
        [chunk.samples for chunk in remote.speak(plan, queue_s=0.0, on_progress=lambda _: True)]
        for plan in plans
    ]
    going = [remote.speak(plan, queue_s=0.0, on_progress=lambda _: True) for plan in plans]
    sounds = [[next(speech).samples] for speech in going]
    started = remote._sound_decoder.generation
    killed(remote)
    for speech, sound in zip(going, sounds, strict=True):
        sound += [chunk.samples for chunk in speech]
    assert remote._sound_decoder.generation == started + 1
    for own, sound in zip(alone, sounds, strict=True):
        np.testing.assert_array_equal(np.concatenate(sound), np.concatenate(own))


def test_a_replay_goes_on_where_its_process_was_killed(remote):
    spoken = speak(remote)
    again = remote.replay(Replay(spoken[-1].result), Playback(0.0))
    sounds = [next(again).samples]
    killed(remote)
    sounds += [chunk.samples for chunk in again]
    np.testing.assert_array_equal(
        np.concatenate(sounds), np.concatenate([chunk.samples for chunk in spoken])
    )


@pytest.mark.slow
def test_what_ends_the_process_twice_is_not_tried_for_ever(remote):
    plan = remote.plan(SpeechJob("id", "One.", SamplingParams(seed=1, ban_tokens=(512,))))
    speech = remote.speak(plan, queue_s=0.0, on_progress=lambda _: True)

    def interrupted() -> None:
        for _ in speech:
            killed(remote)

    with pytest.raises(WorkerLost):
        interrupted()
    remote.prepare_sound()
    assert speak(remote)


def test_a_model_that_the_process_cannot_load_is_told(tmp_path):
    process = SoundProcess(partial(load_speech_model, tmp_path / "missing", torch.device("cpu")))
    with pytest.raises(GenerationFailed, match="could not load"):
        process.ready()
    process.close()


@pytest.mark.slow
def test_a_program_that_forgets_to_close_it_ends_all_the_same(toy):
    program = """
import sys
from app.engine.backend.synthesizer import Synthesizer

if __name__ == "__main__":
    synthesizer = Synthesizer.load(
        sys.argv[1], "cpu", threads=1, max_text_chars=200, sound_process=True
    )
    synthesizer.prepare_sound()
"""
    subprocess.run([sys.executable, "-c", program, str(toy)], check=True, timeout=60)
