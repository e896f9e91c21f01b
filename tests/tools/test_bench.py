"""`valle-serve bench`: its table and its JSON, in process and against a server."""

import asyncio
import json
from pathlib import Path

import httpx
import httpx2
import pytest

from app.cli import main
from tools.listeners import ReceivedSpeech, closed_loop, figures


def test_figures_are_those_of_the_listeners_that_heard_something() -> None:
    rate = 2 * 24_000
    good = ReceivedSpeech(200, arrivals=((0.5, rate), (2.0, rate)), sound=bytes(2 * rate))
    busy = ReceivedSpeech(503, sound=b"busy")
    cut = ReceivedSpeech(200, sound=b"..", arrivals=((1.0, 2),), broke="ReadError")
    found = figures("3 at once", [good, busy, cut], 0.5)
    assert (found.requests, found.failed, found.errors) == (3, 2, ("503: busy", "ReadError"))
    assert (found.rtf_p50, found.gaps) == (1, 1)
    assert figures("1 at once", [busy], 0.0).failed == 1


def test_every_listener_asks_for_so_many_sentences_no_two_with_one_seed() -> None:
    asked: list[tuple[str, int]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        asked.append((body["input"], body["seed"]))
        return httpx2.Response(
            200, stream=httpx2.ByteStream(b"ab"), headers={"x-sample-rate": "24000"}
        )

    async def measure() -> None:
        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            assert (await closed_loop(client, 3, ["a", "b"] * 3)).failed == 0

    asyncio.run(measure())
    assert len({seed for _, seed in asked}) == len(asked) == 6
    assert {text for text, _ in asked} == {"a", "b"}


def _measured(tmp_path: Path, *arguments: str) -> dict[str, object]:
    out = tmp_path / "bench.json"
    assert main(["bench", "--at-once", "1,2", "--requests", "1", "-o", str(out), *arguments]) == 0
    figures = json.loads(out.read_text())
    assert isinstance(figures, dict)
    return figures


def _check(figures: dict[str, object], table: str) -> None:
    loads = figures["loads"]
    assert isinstance(loads, list)
    assert [row["load"] for row in loads] == ["1 at once", "2 at once"]
    for row in loads:
        assert row["failed"] == 0
        assert 0 < row["first_p50_ms"] <= row["first_p95_ms"]
        assert 0 < row["rtf_p50"] <= row["rtf_p95"]
        assert row["audio_a_second"] > 0
    assert [line.split()[0] for line in table.splitlines()[-2:]] == ["1", "2"]


@pytest.mark.slow
def test_in_process_it_names_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = _measured(tmp_path)
    assert figures["model"] == "toy"
    assert {"machine", "cpus", "torch", "device", "load"} <= figures.keys()
    _check(figures, capsys.readouterr().out)


@pytest.mark.slow
def test_it_measures_a_running_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_server: httpx.Client
) -> None:
    figures = _measured(tmp_path, "--url", str(toy_server.base_url))
    assert figures["server"] == str(toy_server.base_url)
    _check(figures, capsys.readouterr().out)
