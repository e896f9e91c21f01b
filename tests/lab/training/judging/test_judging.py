"""The judging of speech, on made-up signals, hand-computed figures and an ear that is told."""

import csv
import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from lab.training.judging import hear
from lab.training.judging.endings import Ending, judge_ending
from lab.training.judging.evaluate import evaluate
from lab.training.judging.imitation import WAYS, Judges, Spoken, figures_of
from lab.training.judging.judges import Errors, Whisper, WordEdits, edits_of
from lab.training.judging.listening import HOP, WINDOW, spectrogram
from lab.training.judging.panel import Judgement, Panel
from lab.training.judging.people import RECORDING_S, RECORDINGS, Person, recordings
from lab.training.judging.prompts import RANDOM, captured_as
from lab.training.judging.report import report
from lab.training.judging.speakers import Recordings, RoundTrip, Server, Speech
from lab.training.speech.corpus import SAMPLE_RATE_HZ
from models.checkpoints.builtin import load_codec
from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS

pytest.importorskip("whisper_normalizer")
pytest.importorskip("jiwer")

TEXTS = ("She keeps keys.", "It rained.", "Turn left now.")


def tone(seconds: float, hz: float = 200, level: float = 0.1) -> np.ndarray:
    times = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (level * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def speech(leading_s: float, spoken_s: float, trailing_s: float) -> np.ndarray:
    return np.concatenate([tone(leading_s, level=0), tone(spoken_s), tone(trailing_s, level=0)])


TEACHER = speech(0.3, 2.0, 0.44)


@pytest.fixture
def said_to_hear(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the ear hears: the last of this list."""
    heard: list[str] = []
    monkeypatch.setattr(Whisper, "__init__", lambda *_: None)
    monkeypatch.setattr(Whisper, "hear", lambda *_: heard[-1])
    monkeypatch.setattr(hear, "whisper_folder", lambda name: Path(name))
    return heard


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ("It had 2,315 patients.", "It had 2300 and 15 patients.", 0),
        ("On 12 May 1923.", "On the twelfth of May, nineteen twenty-three.", 0),
        ("It had 2,315 patients.", "It had 2313 patients.", 1),
    ],
)
def test_figures_are_compared_in_words_if_asked(said_to_hear, said, heard, edits) -> None:
    said_to_hear.append(heard)
    for as_read in (True, False):
        panel = Panel({"ear": Whisper()}, lambda text, seed: TEACHER, as_read=as_read)  # type: ignore[call-arg]
        found = panel.judge(said, 0, Speech(TEACHER)).errors["ear"].word_edits
        assert found == edits if as_read else found > 0


@pytest.mark.parametrize(
    ("samples", "faults"),
    [
        (TEACHER, ()),
        (tone(2.0), ()),
        (tone(3.7), ("runaway",)),
        (tone(3.5), ()),
        (tone(0.9), ("cut_short",)),
        (speech(0, 2, 0.7), ("silent",)),
        (tone(2.0, level=0), ("cut_short", "silent")),
        (tone(0.0), ("cut_short",)),
    ],
)
def test_an_ending_has_the_faults_that_its_samples_show(
    samples: np.ndarray, faults: tuple[str, ...]
) -> None:
    ending = judge_ending(samples, TEACHER, SAMPLE_RATE_HZ)
    names = ("runaway", "cut_short", "silent")
    assert ending == Ending(**{name: name in faults for name in names}, stuck=None)
    assert ending.faulty == bool(faults)


def judgement(text: str, seed: int, edits: int, *, wall_s: float | None = 0.5) -> Judgement:
    fine = Ending(runaway=False, cut_short=False, silent=False, stuck=None)
    return Judgement(
        text=text, seed=seed, duration_s=2.0, spoken_s=1.5, teacher_spoken_s=1.0, wall_s=wall_s,
        heard={"tiny.en": ""}, errors={"tiny.en": Errors(10, edits, 50, edits)},
        ending=fine, dnsmos=None, similarity=0.5,
    )  # fmt: skip


def test_the_table_holds_the_sums_by_hand() -> None:
    texts = [f"sentence {number}" for number in range(8)]
    teacher = [judgement(text, seed, 1) for text in texts for seed in (0, 1)]
    model = [judgement(text, seed, 2, wall_s=None) for text in texts for seed in (0, 1)]
    figures, table = report({"teacher": teacher, "model": model})
    assert figures["WER (tiny.en)"]["model"]["value"] == pytest.approx(0.2)
    assert figures["WER (tiny.en), less the teacher's"]["model"]["value"] == pytest.approx(0.1)
    assert "| WER (tiny.en) | 10.0 % [10.0, 10.0] | 20.0 % [20.0, 20.0] |" in table
    assert "| seconds of audio a second | 4.00 [4.00, 4.00] |  |" in table
    assert "| stuck in a loop, or gave up |  |  |" in table  # nothing is known of it: not zero
    assert "16 recordings of 8 sentences" in table


def test_a_callable_is_judged_and_its_recordings_can_be_judged_again(tmp_path: Path) -> None:
    said = []

    def speak(text: str, seed: int) -> np.ndarray:
        said.append((text, seed))
        return tone(2.0)

    panel = Panel({}, lambda text, seed: TEACHER)
    rows = evaluate(speak, ["One.", "Two."], 2, panel, wav_folder=tmp_path)
    assert said[1:] == [("One.", 0), ("One.", 1), ("Two.", 0), ("Two.", 1)]  # the first warms up
    assert all(row.wall_s is not None and not row.ending.faulty for row in rows)
    again = Recordings(tmp_path, ["One.", "Two."])
    assert np.allclose(again("Two.", 1).samples, tone(2.0), atol=1e-4)


@pytest.mark.slow
def test_a_server_is_asked(toy_server: httpx.Client) -> None:
    ask = Server(str(toy_server.base_url))
    assert len(ask("Hello.", 3).samples)
    with pytest.raises(RuntimeError, match="/tts: 422"):
        ask("", 3)
    ask.close()


@pytest.mark.parametrize("levels", [1, None])
def test_the_round_trip_can_leave_levels_out(toy: Path, levels: int | None) -> None:
    said = RoundTrip(lambda *_: tone(1.01), load_codec(toy), levels)("Hello.", 0)
    assert len(said.samples) == len(tone(1.01))  # without what the last frame was filled with
    assert said.codes is not None
    assert said.codes.shape == (76, levels or 8)
    assert said.wall_s is not None


@pytest.mark.parametrize(
    ("heard", "edits"),
    [
        ("She keeps bees. It rained. Turn left now.", [(1, 0, 0), (0, 0, 0), (0, 0, 0)]),
        ("She keeps keys. It. Turn left now. So there.", [(0, 0, 0), (0, 1, 0), (0, 0, 2)]),
        # What is said again belongs to what it repeats, other words to what follows.
        ("She keeps keys. Keys. It rained. Well turn left now.", [(0, 0, 1), (0, 0, 0), (0, 0, 1)]),
        ("", [(0, 3, 0), (0, 2, 0), (0, 3, 0)]),
    ],
)
def test_edits_of_joined_texts_are_of_the_text_whose_words_they_are_at(heard, edits) -> None:
    expected = [WordEdits(words, *one) for words, one in zip((3, 2, 3), edits, strict=True)]
    assert edits_of(TEXTS, heard) == expected


def test_takes_of_a_setting_are_joined_and_those_of_an_interrupted_study_are_kept(
    said_to_hear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_to_hear.append("it rained")
    monkeypatch.setattr("sys.argv", ["hear", "--joined", str(tmp_path / "heard")])
    for text in TEXTS:  # each is a run of the study
        sound = tmp_path / f"{text}wav"
        soundfile.write(sound, np.zeros(160_000, np.float32), 16_000)
        takes = [{"text": text, "sound": str(sound), "setting": {"top_k": k}} for k in (1, 2)]
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, takes))))
        hear.main()
        sound.unlink()  # as the study does
    with (tmp_path / "heard" / "heard.csv").open() as file:
        found = [(row["text"], row["edits"]) for row in csv.DictReader(file)]
    assert found == 2 * [("It rained.", "0"), ("She keeps keys.", "3"), ("Turn left now.", "3")]


class Ears(Judges):
    """Takes the first two samples for the speaker, the third for wrong words, all for quality."""

    def __init__(self):
        pass

    def embed(self, samples):
        return samples[:2]

    def words(self, samples, text):
        return int(samples[2]), 4

    def rate(self, samples):
        return len(samples)


@pytest.mark.parametrize("text", ["x", None])
def test_figures_are_means_over_all_recordings_and_words_count_where_they_are_known(text):
    spoken = [[1, 0, 1], [0, 1, 3]], [[0, 1, 0, 0]]
    said: dict[str, Spoken] = {
        name: [(np.array(one, np.float32), text) for one in own]
        for name, own in zip("ab", spoken, strict=True)
    }
    figures = figures_of(said, {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 1.0])}, Ears())
    expected = {"nearest": 2 / 3, "cosine": 2 / 3, "dnsmos": 10 / 3}
    expected |= {"wer": 1 / 3} if text else {}
    assert {name: one.value for name, one in figures.items()} == pytest.approx(expected)


@pytest.mark.parametrize("way", [*WAYS, RANDOM])
def test_a_recording_has_the_length_of_what_was_said_and_the_loudness_of_an_upload(way):
    buzz = (0.1 * (10 * tone(1.5, 120)) ** 5).astype(np.float32)
    found = captured_as(buzz, way, seed=1)
    assert len(found) == pytest.approx(1.5 * SAMPLE_RATE_HZ, abs=2)
    assert loudness_lufs(found, SAMPLE_RATE_HZ) == pytest.approx(LEVEL_LUFS, abs=0.5)


def test_a_tone_stands_at_its_frequency_in_a_picture() -> None:
    levels = spectrogram(tone(0.5, 3000, level=1))
    assert levels.shape == (WINDOW // 2 + 1, (SAMPLE_RATE_HZ // 2 - WINDOW) // HOP + 1)
    assert levels.max() == 0
    assert (levels.argmax(0) == 3000 * WINDOW // SAMPLE_RATE_HZ).all()


def test_files_of_a_person_are_joined_but_silent_and_very_short_ones_until_they_are_long_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    folder = tmp_path / "judged-people" / "package" / "sounds"
    folder.mkdir(parents=True)
    person = Person("somebody", "English", "package", "CC0-1.0", "sounds/*.wav")
    with pytest.raises(FileNotFoundError, match="package"):
        recordings(person)
    kinds = ((2.0, 0.1), (0.2, 0.9), (2.0, 0.001))  # seconds, level
    for number in range(60):
        seconds, level = kinds[number % 3]
        sound = np.full((round(seconds * 16_000), 2), level, np.float32)
        soundfile.write(folder / f"{number:03d}.wav", sound, 16_000)
    found = recordings(person)
    assert len(found) == RECORDINGS
    for samples, rate_hz in found:
        assert (rate_hz, samples.ndim) == (16_000, 1)
        assert RECORDING_S <= len(samples) / rate_hz < RECORDING_S + 2.5
        assert np.abs(samples).max() < 0.2
