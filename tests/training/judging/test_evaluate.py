"""The judging of speech, on made-up signals and hand-computed figures."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import soundfile
import torch

from training.judging.endings import Ending, judge_ending
from training.judging.evaluate import evaluate
from training.judging.judges import Errors, Whisper
from training.judging.panel import Judgement, Panel
from training.judging.report import report
from training.judging.speakers import Recordings, RoundTrip, Server, Speech

RATE_HZ = 24_000


def tone(seconds: float, level: float = 0.1) -> np.ndarray:
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return (level * np.sin(2 * np.pi * 200 * times)).astype(np.float32)


def silence(seconds: float, level: float = 0.0) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=round(seconds * RATE_HZ))
    return (level * noise).astype(np.float32)


def speech(leading_s: float, spoken_s: float, trailing_s: float) -> np.ndarray:
    return np.concatenate([silence(leading_s), tone(spoken_s), silence(trailing_s)])


TEACHER = speech(0.3, 2.0, 0.44)


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ("It had 2,315 patients.", "It had 2300 and 15 patients.", 0),
        ("On 12 May 1923.", "On the twelfth of May, nineteen twenty-three.", 0),
        ("It had 2,315 patients.", "It had 2313 patients.", 1),
    ],
)
def test_figures_are_compared_in_words_if_asked(
    said: str, heard: str, edits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("whisper_normalizer")
    pytest.importorskip("jiwer")
    monkeypatch.setattr(Whisper, "__init__", lambda _: None)
    monkeypatch.setattr(Whisper, "hear", lambda *_: heard)
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
        (silence(2.0), ("cut_short", "silent")),
        (silence(0.0), ("cut_short",)),
    ],
)
def test_faults(samples: np.ndarray, faults: tuple[str, ...]) -> None:
    ending = judge_ending(samples, TEACHER, RATE_HZ)
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
    assert "| DNSMOS overall |  |  |" in table
    assert "| stuck in a loop, or gave up |  |  |" in table  # nothing is known of it: not zero
    assert "16 recordings of 8 sentences" in table


def test_a_callable_is_judged(tmp_path: Path) -> None:
    pytest.importorskip("whisper_normalizer")
    pytest.importorskip("jiwer")
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
    with pytest.raises(soundfile.LibsndfileError):
        again("Two.", 7)


class _Answers(BaseHTTPRequestHandler):
    requests: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append({"path": self.path, **request})
        self.send_response(422 if request["seed"] == 9 else 200)
        self.send_header("x-finish-reason", "length")
        self.end_headers()
        body = io.BytesIO()
        soundfile.write(body, tone(1.0)[::2], RATE_HZ // 2, format="WAV")
        self.wfile.write(body.getvalue())

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def test_a_server_is_asked() -> None:
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = Server(f"http://127.0.0.1:{server.server_port}")
        said = ask("Hello.", 3)
        assert _Answers.requests == [{"path": "/tts", "input": "Hello.", "seed": 3}]
        assert said.gave_up  # a finish reason other than stop
        assert len(said.samples) == RATE_HZ  # the WAV has 12 kHz
        with pytest.raises(RuntimeError, match="/tts: 422"):
            ask("Hello.", 9)
        ask.close()
        server.shutdown()


class HalfCodec:
    """Codes are samples in steps of 1/1024 at the first level; further levels are noise."""

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(samples, (0, 100))
        return torch.stack([(padded * 1024).long(), torch.ones_like(padded).long()], dim=1)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        return codes.sum(dim=1) / 1024


@pytest.mark.parametrize(("levels", "added"), [(1, 0), (None, 1 / 1024)])
def test_the_round_trip_can_leave_levels_out(levels: int | None, added: float) -> None:
    said = RoundTrip(lambda *_: tone(1.0), HalfCodec(), levels)("Hello.", 0)  # type: ignore[arg-type]
    assert np.allclose(said.samples, tone(1.0) + added, atol=1 / 1024)
    assert len(said.samples) == RATE_HZ  # without what the last frame was filled with
    assert said.codes is not None
    assert said.codes.shape == (RATE_HZ + 100, levels or 2)
    assert said.wall_s is not None
