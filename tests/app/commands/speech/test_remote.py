"""`valle-serve speak --url` gives what the server gives, and says why where it does not."""

from pathlib import Path

import httpx
import pytest

from app.cli import main

SHORT = ["--max-duration-s", "0.4", "--seed", "9"]


@pytest.fixture
def url(toy_server: httpx.Client) -> str:
    return str(toy_server.base_url)


@pytest.mark.slow
def test_a_file_is_what_the_server_answers_and_as_good_as_our_own(
    url: str,
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    knobs = ["--temperature", "0.7", "--sampler-order", "hf", *SHORT]
    for name, more in (("there.wav", ["--url", url]), ("here.wav", [])):
        assert main(["speak", "Hello there.", "-o", str(tmp_path / name), *knobs, *more]) == 0
    there = (tmp_path / "there.wav").read_bytes()
    assert there == (tmp_path / "here.wav").read_bytes()
    assert "voice toy, seed 9" in capsys.readouterr().err.splitlines()[0]


def test_a_pipe_gets_it_while_it_is_spoken(
    url: str, toy_server: httpx.Client, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["speak", "Hello.", "-o", "-", "--url", url, "--response-format", "pcm", *SHORT]
    assert main(words) == 0
    wanted = {"input": "Hello.", "response_format": "pcm", "max_duration_s": 0.4, "seed": 9}
    assert capsysbinary.readouterr() == (toy_server.post("/tts", json=wanted).content, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--voice", "eve"], "voice: there is no voice 'eve'"),
        (["--top-k", "3", "--mirostat-mode", "2"], ""),
        (["--model", "x"], "model: the server has its own"),
        (["--key", ""], "key: it is empty"),
        (["--key", "a\nb"], "or has a character that no key has"),
        (["--key", "\u00fc"], "or has a character that no key has"),
    ],
)
def test_what_the_server_refuses_is_one_line_and_status_2(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    out = tmp_path / "a.wav"
    assert main(["speak", "Hello.", "-o", str(out), "--url", url, *arguments]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said
    assert not out.exists()
