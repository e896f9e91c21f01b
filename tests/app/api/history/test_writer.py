"""Reports as JSON in pieces: what the model says, and small work at a time."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from app.api.history.report import SpeechReport
from app.api.history.writer import ReportWriter, report_pieces
from app.engine.core import ReportOptions, SpeechJob, SpeechResult
from app.engine.results import UtteranceResult
from samplers.ar.trace import FIELDS, entries
from samplers.knobs.params import SamplingParams
from tests.fakes import result_of

FLAGS = {"repeated", "paused", "branched", "saw_nan", "saw_inf", "all_masked"}
COUNTS = {"attempt", "code", "changed", "banned", "kept", "stop_rank", "entropix_state"}
JOB = SpeechJob(id="a", text="Hi.", params=SamplingParams(), report=ReportOptions(trace=True))


def trace(draws: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(draws)
    columns: dict[str, np.ndarray[Any, Any]] = {"frame": np.arange(draws)}
    for name in FIELDS:
        if name in FLAGS:
            columns[name] = rng.random(draws) < 0.5
        elif name in COUNTS:
            columns[name] = rng.integers(0, 1000, draws)
        elif name not in {"frame", "alive"}:
            columns[name] = rng.normal(size=draws).astype(np.float32)
    columns["mirostat_mu"][:] = np.nan
    return columns


def spoken(frames: int, *, traced: bool = True) -> UtteranceResult:
    codes = np.random.default_rng(frames).integers(0, 1024, (frames, 8)).astype(np.int16)
    return UtteranceResult(codes, "stop", trace=trace(frames + 1) if traced else None)


def read(made: SpeechResult) -> dict[str, Any]:
    report: dict[str, Any] = json.loads("".join(report_pieces(JOB, made)))
    return report


@pytest.mark.parametrize("frames", [1, 63, 64, 65, 300])
def test_a_report_tells_every_number_of_codes_and_trace(frames) -> None:
    one = spoken(frames)
    report = read(result_of(one, spoken(2, traced=False)))
    told, plain = report["utterances"]
    assert told["codes"] == one.codes.tolist()
    assert one.trace is not None
    expected = entries(one.trace)
    for token, want in zip(told["tokens"], expected, strict=True):
        assert token.pop("mirostat_mu") is None
        assert np.isnan(want.pop("mirostat_mu"))
        assert token == want
    assert told["scores"] == [token["score"] for token in expected]
    assert [plain[name] for name in ("tokens", "scores", "logprobs")] == [None] * 3
    assert list(SpeechReport.model_fields)[:2] == list(report)[:2]
    SpeechReport.model_validate(report)


def test_what_was_taken_back_has_no_score() -> None:
    columns = trace(6)
    columns["frame"] = np.array([0, 1, 2, 1, 2, 3])
    codes = np.zeros((3, 8), np.int16)
    told = read(result_of(UtteranceResult(codes, "stop", trace=columns)))
    scores = columns["score"].tolist()
    assert told["utterances"][0]["scores"] == [scores[place] for place in (0, 3, 4, 5)]


def test_a_pause_and_nothing_at_all_are_reports() -> None:
    pause = UtteranceResult(np.zeros((0, 8), np.int16), "stop", trace={})
    (told,) = read(result_of(pause))["utterances"]
    assert (told["codes"], told["tokens"], told["scores"]) == ([], [], [])
    assert read(result_of())["utterances"] == []


def test_no_piece_is_large_however_long_the_report() -> None:
    """Whatever makes one piece holds the interpreter meanwhile, and everybody waits for it."""
    pieces = list(report_pieces(JOB, result_of(spoken(5000))))
    assert sum(map(len, pieces)) > 3_000_000
    assert max(map(len, pieces)) < 100_000
    assert all(pieces)


@pytest.mark.anyio
async def test_reports_are_made_by_turns_and_one_at_a_time() -> None:
    writer, order, working = ReportWriter(), [], 0

    def pieces(name: str):
        nonlocal working
        for _ in range(5):
            working += 1
            assert working == 1
            working -= 1
            yield name

    async def read(name: str) -> None:
        async for piece in writer.write(pieces(name)):
            order.append(piece)

    await asyncio.gather(*map(read, "abc"))
    assert sorted(order) == sorted("abc" * 5)
    assert sorted(order[:3]) == ["a", "b", "c"]


def test_a_report_is_sent_as_it_is_made(toy_server: httpx.Client) -> None:
    body = {"input": "Hi there.", "trace": True, "max_duration_s": 1}
    made = toy_server.post("/tts", json=body)
    answer = toy_server.get(f"/v1/audio/speech/{made.headers['x-request-id']}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert SpeechReport.model_validate_json(answer.content).utterances[0].tokens
