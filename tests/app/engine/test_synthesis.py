import hashlib
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from app.engine import run, synthesis
from app.engine.decode import Decoded, Piece
from app.engine.errors import GenerationFailed, InvalidRequest, UnknownVoice
from app.engine.job import AudioChunk, Progress, SpeechJob, SpeechResult
from app.engine.run import longest
from app.engine.speaking import Replay
from app.engine.synthesis import Synthesizer
from models.checkpoints import CheckpointError
from samplers.conflicts import ConflictError
from samplers.params import SamplingParams
from tests.toy.make_toy import MODEL, make


@pytest.fixture(scope="module")
def synthesizer(toy) -> Synthesizer:
    return Synthesizer.load(toy, "cpu", threads=1, max_text_chars=200)


def job(text: str = "Hello.", **fields) -> SpeechJob:
    return SpeechJob("id", text, fields.pop("params", SamplingParams(seed=1)), **fields)


def spoken(synthesizer: Synthesizer, wanted: SpeechJob) -> tuple[list[AudioChunk], SpeechResult]:
    plan = synthesizer.plan(wanted)
    chunks = list(synthesizer.speak(plan, queue_s=0.5, on_progress=lambda _: True))
    result = chunks[-1].result
    assert result is not None
    return chunks, result


def scripted(monkeypatch, *codes: int, reason: Literal["stop", "length"] = "stop") -> list[Piece]:
    """Decode so many frames an utterance instead of asking the model; note each call."""
    calls: list[Piece] = []

    def decode(model, codebooks, piece, on_frame):
        frames = min(codes[len(calls)], piece.max_frames)
        calls.append(piece)
        for frame in range(frames):
            if not on_frame(frame + 1):
                return Decoded(torch.zeros(frame + 1, 1).long(), "cancelled", 0.0, 0.0)
        return Decoded(torch.full((frames, 8), len(calls)), reason, 0.25, 0.125)

    monkeypatch.setattr(run, "decode_utterance", decode)
    return calls


def test_it_gives_a_chunk_an_utterance_and_the_account_with_the_last(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 10, 20)
    chunks, result = spoken(synthesizer, job("One. Two."))
    assert [chunk.result is None for chunk in chunks] == [True, False]
    assert (result.frames, result.finish_reason) == (30, "stop")
    assert (result.voice, result.language, result.seed) == ("toy", "en", 1)
    assert result.audio_s == sum(len(chunk.samples) for chunk in chunks) / 24_000
    assert (result.timings.queue_s, result.timings.ar_s, result.timings.nar_s) == (0.5, 0.5, 0.25)
    assert result.timings.total_s > 0.5
    assert [call.utterance for call in calls] == [0, 1]
    assert all(call.prompt is not None and len(call.prompt) == 38 for call in calls)


def test_the_hash_is_of_all_codes_in_order_as_int16(synthesizer, monkeypatch):
    scripted(monkeypatch, 2, 1)
    _, result = spoken(synthesizer, job("One. Two."))
    codes = np.array([[1] * 8, [1] * 8, [2] * 8], dtype="<i2")
    assert result.codes_sha256 == hashlib.sha256(codes.tobytes()).hexdigest()


def test_the_gravest_finish_reason_is_the_jobs(synthesizer, monkeypatch):
    scripted(monkeypatch, 5, 5, reason="length")
    assert spoken(synthesizer, job("One. Two."))[1].finish_reason == "length"


def test_a_bound_on_the_duration_ends_the_job_between_and_inside_utterances(
    synthesizer, monkeypatch
):
    calls = scripted(monkeypatch, 10, 10, 10)
    chunks, result = spoken(synthesizer, job("One. Two. Three.", max_duration_s=15 / 75))
    assert result.frames == 15
    assert [call.max_frames for call in calls][1] == 5
    assert len(chunks) == 2
    assert result.finish_reason == "length"


def test_without_a_bound_the_text_bounds_the_frames(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 1)
    spoken(synthesizer, job("Hello."))
    assert calls[0].max_frames == longest(len(calls[0].phoneme_ids), 75)


def test_longest_grows_with_the_text_up_to_a_minute():
    assert longest(0, 75) == 75
    assert longest(100, 75) == 100 * 12 + 75
    assert longest(10_000, 75) == 60 * 75


def test_an_utterance_without_frames_is_silence_not_an_error(synthesizer, monkeypatch):
    scripted(monkeypatch, 0)
    chunks, result = spoken(synthesizer, job("Hello."))
    assert (result.frames, len(chunks[0].samples)) == (0, 0)


def test_a_pause_in_the_text_is_heard(synthesizer, monkeypatch):
    scripted(monkeypatch, 10)
    plain, _ = spoken(synthesizer, job("Hello."))
    scripted(monkeypatch, 10)
    paused, _ = spoken(synthesizer, job("Hello. [pause:0.5s]"))
    seconds = [sum(len(chunk.samples) for chunk in chunks) / 24_000 for chunks in (plain, paused)]
    assert seconds[1] - seconds[0] == pytest.approx(0.5)


def test_pause_s_stands_between_utterances_and_gives_way_to_the_texts_own(synthesizer, monkeypatch):
    def seconds(text: str, pause_s: float) -> float:
        scripted(monkeypatch, 10, 10)
        params = SamplingParams(seed=1, pause_s=pause_s)
        return spoken(synthesizer, job(text, params=params))[1].audio_s

    text = "One. Two."
    assert seconds(text, 1.0) - seconds(text, 0.25) == pytest.approx(0.75)
    assert seconds(text, 0.25) - seconds(text, 0.0) == pytest.approx(0.25)
    text = "One. [pause:0.5s] Two."
    assert seconds(text, 1.0) == seconds(text, 0.0)


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("One. Two.", None),
        ("[pause:0.3s] One. [pause:1s] Two. [pause:2s]", None),
        ("One. [pause:1s] Two. [pause:2s] Three.", 30),
    ],
)
def test_a_replay_has_the_samples_and_the_account_of_the_speech(synthesizer, text, frames):
    params = SamplingParams(seed=1, pause_s=0.4, ban_tokens=(512,))
    wanted = job(text, params=params, max_duration_s=(frames or 90) / 75)
    chunks, result = spoken(synthesizer, wanted)
    again = list(synthesizer.replay(Replay(result), queue_s=0.5, on_progress=lambda _: True))
    assert [chunk.result is None for chunk in again] == [chunk.result is None for chunk in chunks]
    for one, other in zip(chunks, again, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
    replayed = again[-1].result
    assert replayed is not None
    assert replace(replayed, timings=result.timings) == result
    assert (replayed.timings.queue_s, replayed.timings.ar_s) == (0.5, 0.0)


def test_a_replay_that_is_told_to_stop_gives_nothing_more(synthesizer, monkeypatch):
    scripted(monkeypatch, 10, 10)
    _, result = spoken(synthesizer, job("One. Two."))
    again = synthesizer.replay(
        Replay(result), queue_s=0.0, on_progress=lambda progress: progress.utterance < 1
    )
    assert [chunk.result for chunk in again] == [None]


def test_a_job_that_is_told_to_stop_gives_nothing_more(synthesizer, monkeypatch):
    scripted(monkeypatch, 10, 10)
    seen = []

    def going(progress: Progress) -> bool:
        seen.append((progress.utterance, progress.utterances, progress.frames))
        return progress.frames < 13

    chunks = list(
        synthesizer.speak(synthesizer.plan(job("One. Two.")), queue_s=0, on_progress=going)
    )
    assert [chunk.result for chunk in chunks] == [None]
    assert seen[0] == (0, 2, 1)
    assert seen[-1] == (1, 2, 13)


def test_samples_that_are_no_numbers_are_a_failure(synthesizer, monkeypatch):
    scripted(monkeypatch, 3)
    monkeypatch.setattr(
        type(synthesizer._speech.codec), "decode", lambda _, codes: torch.full((960,), torch.nan)
    )
    with pytest.raises(GenerationFailed, match="no numbers"):
        spoken(synthesizer, job())


def test_the_params_are_resolved_and_reported(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 1)
    _, result = spoken(synthesizer, job(params=SamplingParams(preset="stable", top_p=0.5)))
    assert (result.params.preset, result.params.top_p) == ("stable", 0.5)
    assert result.params.temperature != SamplingParams().temperature
    assert result.params.seed == result.seed == calls[0].seed
    assert calls[0].params is result.params


def test_a_text_is_bounded_before_any_work(synthesizer):
    with pytest.raises(InvalidRequest, match="201 characters, at most 200") as refusal:
        synthesizer.plan(job("a" * 201))
    assert refusal.value.param == "input"


def test_default_means_the_first_voice_whatever_its_name(synthesizer):
    voices = {synthesizer.plan(job(voice=name)).voice.name for name in (None, "default", "toy")}
    assert voices == {"toy"}


def test_what_nobody_can_speak_is_refused(synthesizer):
    with pytest.raises(UnknownVoice, match="'eve'; there are: toy"):
        synthesizer.plan(job(voice="eve"))
    with pytest.raises(InvalidRequest, match="only en"):
        synthesizer.plan(job(language="fr"))
    with pytest.raises(InvalidRequest) as refusal:
        synthesizer.plan(job("?!"))
    assert refusal.value.param == "input"


def test_a_card_that_names_no_preset_is_an_error_at_start(toy, tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    for file in toy.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    card = (folder / "lm.json").read_text().replace('"preset": "default"', '"preset": "loud"')
    (folder / "lm.json").write_text(card)
    with pytest.raises(CheckpointError, match="loud"):
        Synthesizer.load(folder, "cpu", threads=1, max_text_chars=200)


def test_knobs_that_contradict_each_other_are_refused_by_name(synthesizer, monkeypatch):
    def resolve(params, preset, presets):
        raise ConflictError(("top_k", "min_p"), "a test says so")

    monkeypatch.setattr(synthesis, "resolve", resolve)
    with pytest.raises(InvalidRequest, match="top_k and min_p: a test says so") as refusal:
        synthesizer.plan(job(params=SamplingParams(top_k=5, min_p=0.1)))
    assert refusal.value.param == "top_k"


BARE = {"has_null_condition": False, "nar_has_null_condition": False, "max_prompt_frames": 0}


@pytest.mark.parametrize(
    "knob",
    [{"cfg_strength": 1.5}, {"nar_cfg_strength": 1.5}, {"penalty_includes_prompt": True}],
    ids=str,
)
def test_a_knob_that_the_model_cannot_honour_is_refused_by_name(synthesizer, tmp_path, knob):
    bare = make(tmp_path / "bare", config=MODEL.model_copy(update=BARE))
    incapable = Synthesizer.load(bare, "cpu", threads=1, max_text_chars=200)
    wanted = job(params=SamplingParams.model_validate(knob))
    with pytest.raises(InvalidRequest) as refusal:
        incapable.plan(wanted)
    assert refusal.value.param == next(iter(knob))
    assert synthesizer.plan(wanted).params.seed is not None
