"""What is played is what would be in a file, whichever player is installed."""

import os
from pathlib import Path

import httpx
import pytest

from app.cli import main
from app.commands.errors import CommandFailed
from app.commands.speech import player

SHORT = ["--max-duration-s", "0.4", "--seed", "9"]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, status: int = 0) -> Path:
    """Put a program of that name, alone, on the path: it keeps what it is to play."""
    heard = folder / "heard"
    source = '"$1"' if name == "afplay" else ""
    program = folder / "programs" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n/bin/cat {source} >{heard}\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return heard


@pytest.mark.parametrize("name", [*player._PLAYERS, "afplay"])
def test_every_player_gets_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    heard = install(tmp_path, monkeypatch, name)
    assert player.find_player() == name
    playing = player.Player(name, 24_000)
    playing.push(b"some")
    playing.push(b"thing.")
    playing.close()
    playing.abandon()
    said = heard.read_bytes()
    assert said.removeprefix(said[:44] if said[:4] == b"RIFF" else b"") == b"something."
    assert (said[:4] == b"RIFF") is (name in {"afplay", "ffplay"})


def test_a_player_that_ends_early_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "aplay", status=1)
    playing = player.Player("aplay", 24_000)
    with pytest.raises(CommandFailed, match="aplay ended before everything was played"):
        playing.close()


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 1])
def test_no_sound_device_is_a_failure_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    """ffplay ends with 0 even then."""
    install(tmp_path, monkeypatch, "ffplay", status=status)
    program = tmp_path / "programs" / "ffplay"
    lines = "ALSA lib confmisc.c: cannot find card\nSDL_OpenAudio (1 channels): no such device"
    told = f"printf '{lines}\n' >&2\nexit"
    program.write_text(program.read_text().replace("exit", told))
    assert main(["speak", "Hello.", "--play", *SHORT]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("play: no sound device, says ffplay (SDL_OpenAudio")
    assert line.endswith("name a file with -o")


def test_ffplay_which_hides_failures_is_the_last_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "ffplay")
    (tmp_path / "programs" / "play").symlink_to("ffplay")
    assert player.find_player() == "play"


@pytest.mark.slow
def test_a_speech_is_played_beside_its_file_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.environ["PATH"]
    heard = install(tmp_path, monkeypatch, "aplay")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{path}")
    out = tmp_path / "a.pcm"
    assert main(["speak", "Hello. You.", "--play", "-o", str(out), *SHORT]) == 0
    assert len(out.read_bytes()) > 1000
    assert heard.read_bytes() == out.read_bytes()
    heard.unlink()
    assert main(["speak", "Hello. You.", "--play", *SHORT]) == 0
    assert heard.read_bytes() == out.read_bytes()
    assert "played: " in capsys.readouterr().err


def test_a_servers_speech_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_server: httpx.Client
) -> None:
    heard = install(tmp_path, monkeypatch, "aplay")
    url = str(toy_server.base_url)
    assert main(["speak", "Hello.", "--play", "--url", url, *SHORT]) == 0
    wanted = {"input": "Hello.", "response_format": "pcm", "max_duration_s": 0.4, "seed": 9}
    assert heard.read_bytes() == toy_server.post("/tts", json=wanted).content
