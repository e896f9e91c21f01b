from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.ar import stage as batch
from app.engine.ar.spec_builder import longest
from app.engine.ar.stage import ArStage
from app.engine.ar.utterance import ArUtterance
from app.engine.backend import synthesizer as backend
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import AudioChunk, Progress, SpeechJob, SpeechResult
from app.engine.errors import GenerationFailed
from app.engine.memory import Memory
from app.engine.results import FinishReason
from app.engine.utterance import UtteranceSpec
from gpu.graphs import GraphCapturer
from models.checkpoints.files import CheckpointError
from models.codecs.encodec import Encodec
from models.valle import Valle
from models.voices.recording import Recording
from samplers.knobs.params import SamplingParams
from tests.app.engine.decoding import decode_utterance
from tests.app.tools.serving import settings_of


@pytest.fixture(scope="module")
def synthesizer(toy) -> Synthesizer:
    return Synthesizer.load(settings_of(toy, max_text_chars=200))


def job(text: str = "Hello.", **fields) -> SpeechJob:
    return SpeechJob("id", text, fields.pop("params", SamplingParams(seed=1)), **fields)


def spoken(synthesizer: Synthesizer, wanted: SpeechJob) -> tuple[list[AudioChunk], SpeechResult]:
    plan = synthesizer.planner.plan(wanted)
    chunks = list(synthesizer.speak(plan))
    result = chunks[-1].result
    assert result is not None
    return chunks, result


def whole(chunks: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


class Scripted(ArUtterance):
    """Level 0 that is known beforehand, a frame a step."""

    def __init__(self, frames: int, code: int, reason: FinishReason) -> None:
        self._frames, self._code, self._reason = frames, code, reason
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def final(self) -> int:
        return self._count

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        return torch.full((self._count,), self._code)[start:end]

    def step(self) -> None:
        self._count = min(self._count + 1, self._frames)
        if self._count == self._frames:
            self.finish_reason = self._reason


def scripted(monkeypatch, *frames: int, reason: FinishReason = "stop") -> list[UtteranceSpec]:
    """Give so many frames of level 0 an utterance instead of asking the AR; note each call."""
    calls: list[UtteranceSpec] = []

    def begin(_: ArStage, __: object, piece: UtteranceSpec) -> Scripted:
        count = min(frames[len(calls)], piece.max_frames)
        calls.append(piece)
        return Scripted(count, len(calls), reason)

    monkeypatch.setattr(ArStage, "_utterance", begin)
    monkeypatch.setattr(batch, "MaskedUtterance", Scripted)  # what is stepped by itself
    return calls


def test_it_gives_the_sound_and_the_account_with_its_last_chunk(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 10, 20)
    chunks, result = spoken(synthesizer, job("One. Two."))
    assert all(chunk.result is None and len(chunk.samples) for chunk in chunks[:-1])
    assert (result.frames, result.finish_reason) == (30, "stop")
    assert [len(utterance.codes) for utterance in result.utterances] == [10, 20]
    assert (result.voice, result.language, result.seed) == ("toy", "en", 1)
    assert result.audio_s == len(whole(chunks)) / 24_000
    timings = result.timings
    assert timings.queue_s == pytest.approx(0, abs=0.1)
    assert min(timings.ar_s, timings.nar_s, timings.codec_s) > 0
    assert timings.total_s > timings.ar_s + timings.nar_s + timings.codec_s
    assert [call.utterance for call in calls] == [0, 1]
    assert all(call.prompt is not None and len(call.prompt) == 38 for call in calls)


ENDLESS = SamplingParams(seed=1, ban_tokens=(512,))


def heard_at(synthesizer, params: SamplingParams) -> list[int]:
    """Return how many frames of level 0 there were when each chunk came."""
    frames, told = [], [0]

    def note(progress: Progress) -> bool:
        told.append(progress.frames)
        return True

    plan = synthesizer.planner.plan(job("Hello.", params=params, max_duration_s=140 / 75))
    for chunk in synthesizer.speak(plan, note):
        assert len(chunk.samples)
        frames.append(told[-1])
    return frames


def test_the_sound_of_a_chunk_comes_with_its_last_frame(synthesizer):
    assert heard_at(synthesizer, ENDLESS) == [15, 30, 60, 105, 140]


@pytest.mark.slow
def test_a_frame_that_may_be_taken_back_is_not_heard(synthesizer):
    backtracking = {"backtrack": True, "backtrack_window": 75, "backtrack_max_silence": 0}
    params = ENDLESS.model_copy(update=backtracking | {"backtrack_min_frames": 1000})
    assert heard_at(synthesizer, params)[:3] == [15, 105, 135]
    soon = params.model_copy(update={"backtrack_share": 0.35})
    assert heard_at(synthesizer, soon)[:3] == [15, 45, 91]


def early_of(synthesizer, params):
    plan = synthesizer.planner.plan(job("One.", params=params))
    with closing(synthesizer.audio.audio_stream(plan, Playback(0.0))) as sound:
        return sound.first_chunks


@pytest.mark.slow
def test_the_frames_that_first_chunks_wait_for_are_known(synthesizer):
    backtracking = {"backtrack": True, "backtrack_max_silence": 0, "backtrack_min_frames": 1000}
    for update in ({}, backtracking, backtracking | {"backtrack_share": 0.35}):
        params = ENDLESS.model_copy(update=update)
        first, *later = heard_at(synthesizer, params)
        early = early_of(synthesizer, params)
        waited = [frames - first for frames in later if frames < later[-1]]  # and the end's
        assert [one.frames for one in early][: len(waited)] == waited
    assert not early_of(synthesizer, SamplingParams(best_of=2))


@pytest.mark.slow
def test_streamed_codes_are_those_of_decoding_the_whole(synthesizer):
    plan = synthesizer.planner.plan(job("One, two. Three!", params=ENDLESS, max_duration_s=2.0))
    *_, last = synthesizer.speak(plan)
    speech, first = synthesizer.speech, last.result.utterances[0]
    ids = synthesizer.planner.front_end.encode(plan.utterances[0].phonemes)
    piece = UtteranceSpec(
        ids, plan.params, 1, 0, max_frames=len(first.codes), prompt=plan.speakers[0][1]
    )
    decoded = decode_utterance(speech.model, speech.codec.quantizer.codebooks, piece)
    np.testing.assert_array_equal(decoded.codes, first.codes)


def test_a_bound_on_the_duration_ends_the_job_between_and_inside_utterances(
    synthesizer, monkeypatch
):
    calls = scripted(monkeypatch, 10, 10, 10)
    _, result = spoken(synthesizer, job("One. Two. Three.", max_duration_s=15 / 75))
    assert result.frames == 15
    assert [call.max_frames for call in calls][1] == 5
    assert len(result.utterances) == 2
    assert result.finish_reason == "length"


def test_without_a_bound_the_text_bounds_the_frames(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 1)
    spoken(synthesizer, job("Hello."))
    assert calls[0].max_frames == longest(len(calls[0].phoneme_ids), 75)


def test_longest_grows_with_the_text_up_to_a_minute():
    assert longest(0, 75) == 75
    assert longest(100, 75) == 100 * 12 + 75
    assert longest(10_000, 75) == 60 * 75


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
    playback = Playback(monotonic() - 0.5)
    again = list(synthesizer.audio.replay(result, playback))
    np.testing.assert_array_equal(whole(again), whole(chunks))
    assert all(chunk.result is None for chunk in again[:-1])
    replayed = again[-1].result
    assert replayed is not None
    assert replace(replayed, timings=result.timings) == result
    assert replayed.timings.queue_s >= 0.5
    assert replayed.timings.ar_s == 0.0


def test_a_job_that_is_told_to_stop_gives_nothing_more(synthesizer, monkeypatch):
    scripted(monkeypatch, 10, 10)
    seen = []

    def going(progress: Progress) -> bool:
        seen.append((progress.utterance, progress.utterances, progress.frames))
        return progress.frames < 13

    chunks = list(synthesizer.speak(synthesizer.planner.plan(job("One. Two.")), going))
    assert {chunk.result for chunk in chunks} == {None}
    assert seen[0] == (0, 2, 1)
    assert seen[-1] == (1, 2, 13)


def test_samples_that_are_no_numbers_are_a_failure(synthesizer, monkeypatch):
    scripted(monkeypatch, 3)
    monkeypatch.setattr(Encodec, "sound", lambda *_: torch.full((1, 960), torch.nan))
    with pytest.raises(GenerationFailed, match="no numbers"):
        spoken(synthesizer, job())


def test_the_params_are_resolved_and_reported(synthesizer, monkeypatch):
    calls = scripted(monkeypatch, 1)
    _, result = spoken(synthesizer, job(params=SamplingParams(preset="stable", top_p=0.5)))
    assert (result.params.preset, result.params.top_p) == ("stable", 0.5)
    assert result.params.temperature != SamplingParams().temperature
    assert result.params.seed == result.seed == calls[0].seed
    assert calls[0].params is result.params


def test_a_card_that_names_no_preset_is_an_error_at_start(toy, tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    for file in toy.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    card = (folder / "lm.json").read_text().replace('"preset": "default"', '"preset": "loud"')
    (folder / "lm.json").write_text(card)
    with pytest.raises(CheckpointError, match="loud"):
        Synthesizer.load(settings_of(folder, max_text_chars=200))


@pytest.mark.parametrize(("broken", "starts"), [(0, True), (1, True), (2, True), (3, False)])
def test_more_than_two_functions_that_cannot_be_recorded_fail_the_start_and_fewer_are_told(
    toy, monkeypatch, broken, starts
):
    left = ["RuntimeError: no"] * broken

    def capture(capturer, function):  # as on a card on which some captures fail
        if left:
            capturer.failed.append(left.pop())
        return function

    monkeypatch.setattr(GraphCapturer, "capture", capture)
    monkeypatch.setattr(backend, "memory_of", lambda model, *_: Memory(model, 8 << 20))
    captured = Synthesizer.load(settings_of(toy, max_text_chars=200))
    if starts:
        captured.ar.batch(2).close()
    else:
        with pytest.raises(RuntimeError, match="3 functions cannot be recorded: RuntimeError: no"):
            captured.ar.batch(2)
    assert captured.info.unrecorded == ("RuntimeError: no",) * broken


def test_the_first_sound_is_measured_without_the_time_that_a_batch_is_made_in(
    synthesizer, monkeypatch
):
    now_s, starts, right = [0.0], list[float](), synthesizer.ar.batch

    def clock() -> float:
        now_s[0] += 1e-3
        return now_s[0]

    def slow_batch(slots):
        now_s[0] += 1000.0
        return right(slots)

    for place in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"app.engine.backend.self_check.{place}", clock)
    monkeypatch.setattr("app.engine.backend.pipeline.perf_counter", clock)
    monkeypatch.setattr("app.engine.admission.playback.monotonic", clock)
    monkeypatch.setattr(synthesizer.ar, "batch", slow_batch)
    costs = CostModel()
    monkeypatch.setattr(costs, "note_start", starts.append)
    synthesizer.checks.measure(costs, 1).close()
    assert starts
    assert max(starts) < 100


def test_voices_and_recordings_are_encoded_on_streams_of_their_own(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, seen = list[object](), list[list[object]]()

    @contextmanager
    def noted(stream: object) -> Iterator[None]:
        entered.append(stream)
        yield
        entered.remove(stream)

    def encode(samples: Tensor) -> Tensor:
        seen.append([*entered])
        return torch.zeros(len(samples) // 320, 8, dtype=torch.int64)

    voices, files, encoder = object(), object(), synthesizer.encoder
    monkeypatch.setattr(torch.cuda, "stream", noted)
    monkeypatch.setattr(encoder, "_voice_stream", voices)
    monkeypatch.setattr(encoder, "_file_stream", files)
    monkeypatch.setattr(synthesizer.speech.codec, "encode", encode)
    encoder._prompts._entries.clear()
    spoken = synthesizer.planner.voices.default.model_copy(update={"codes": None})
    assert encoder.prompt(spoken) is not None
    encoder._prompts._entries.clear()
    encoder.encode(Recording(np.zeros(48_000, np.float32), 24_000))
    assert seen == [[voices], [files]]


@pytest.mark.slow
def test_a_gpu_is_asked_for_the_same_codes_among_more_than_a_few_rows(synthesizer, monkeypatch):
    exact = Valle.logits

    def rounded(model: Valle, hidden: Tensor, level: int) -> Tensor:
        logits = exact(model, hidden, level)
        return logits.roll(1, -1) if level == 0 and len(hidden) > 4 else logits

    monkeypatch.setattr(Valle, "logits", rounded)
    assert synthesizer.checks.check_deterministic()
    monkeypatch.setattr(synthesizer.checks, "info", replace(synthesizer.info, device="cuda"))
    assert not synthesizer.checks.check_deterministic()
