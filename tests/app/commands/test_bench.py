"""`valle-serve bench`: its table and its JSON, in process and against a server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from app.cli import main
from app.commands.errors import CommandFailed
from app.commands.listeners import Listen, listen_once, run_load


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")


def speaker(*chunks: tuple[float, float]) -> Listen:
    """Return one who gives chunks, each after so many seconds and with so many seconds of sound."""

    async def listen(text: str, seed: int) -> AsyncGenerator[float, None]:
        for wait_s, audio_s in chunks:
            await asyncio.sleep(wait_s)
            yield audio_s

    return listen


def test_a_listener_notes_when_the_first_sound_came_and_how_long_there_was_none() -> None:
    result = asyncio.run(
        listen_once(speaker((0.1, 0.05), (0.2, 1.0), (0.0, 1.0)), "Hello.", seed=0)
    )
    assert result.error is None
    assert result.audio_s == pytest.approx(2.05)
    assert 0.1 <= result.first_s < result.wall_s
    assert result.underrun_s == pytest.approx(result.wall_s - result.first_s - 0.05, abs=0.01)


def test_sound_in_time_has_no_gap() -> None:
    result = asyncio.run(listen_once(speaker((0.0, 60.0), (0.1, 1.0)), "Hello.", seed=0))
    assert result.underrun_s == 0


def test_every_listener_asks_for_so_many_sentences_no_two_with_one_seed() -> None:
    asked: list[tuple[str, int]] = []

    async def listen(text: str, seed: int) -> AsyncGenerator[float, None]:
        asked.append((text, seed))
        if seed == 2:
            raise CommandFailed("503: busy")
        yield 1.0

    figures = asyncio.run(run_load(listen, ["a", "b"], at_once=3, requests=2))
    assert len({seed for _, seed in asked}) == len(asked) == figures.requests == 6
    assert {text for text, _ in asked} == {"a", "b"}
    assert (figures.failed, figures.errors) == (1, ("503: busy",))


def _measured(tmp_path: Path, *arguments: str) -> dict[str, object]:
    out = tmp_path / "bench.json"
    assert main(["bench", "--at-once", "1,2", "--requests", "1", "-o", str(out), *arguments]) == 0
    figures = json.loads(out.read_text())
    assert isinstance(figures, dict)
    return figures


def _check(figures: dict[str, object], table: str) -> None:
    loads = figures["loads"]
    assert isinstance(loads, list)
    assert [row["at_once"] for row in loads] == [1, 2]
    for row in loads:
        assert row["failed"] == 0
        assert 0 < row["first_audio_p50_ms"] <= row["first_audio_p95_ms"]
        assert 0 < row["real_time_factor_p50"] <= row["real_time_factor_p95"]
        assert row["audio_s_a_second"] > 0
    assert [line.split()[0] for line in table.splitlines()[-2:]] == ["1", "2"]


def test_in_process_it_names_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = _measured(tmp_path)
    assert figures["model"] == "toy"
    assert {"machine", "cpus", "torch", "device", "load"} <= figures.keys()
    _check(figures, capsys.readouterr().out)


def test_it_measures_a_running_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_server: httpx.Client
) -> None:
    figures = _measured(tmp_path, "--url", str(toy_server.base_url))
    assert figures["server"] == str(toy_server.base_url)
    _check(figures, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at-once", "0"], "at-once.0: Input should be greater than 0"),
        (["--url", "http://127.0.0.1:9"], "url: http://127.0.0.1:9: "),
        (["--url", "nothing"], "url: nothing: "),
        (["--url", "http://127.0.0.1:9", "--model", "x"], "model: the server has its own"),
        (["--key", "secret"], "key: only a server takes a key"),
        (["--model", "/nowhere"], "model: /nowhere"),
        (["-o", "/nowhere/a.json"], "out: /nowhere is not a folder"),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said
