"""Voices are backed up, restored and moved by the commands of docs/upgrade.md."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import Settings
from app.storage.voice_store import EVERYBODY, open_voice_store
from models.voices.voice import VoiceCard
from tests.app.storage.test_voice_store import recording
from tests.conftest import ROOT
from tests.docs.pages import blocks, run

OLD, NEW = Path(".cache/valle-serve/voices"), Path(".local/share/valle-serve/voices")


def _line(beginning: str) -> str:
    lines = [line for block in blocks("docs/upgrade.md", "sh") for line in block.splitlines()]
    (found,) = [line for line in lines if line.startswith(beginning)]
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def _add(folder: Path, name: str) -> None:
    store = open_voice_store(str(folder), 9)
    store.add(name, EVERYBODY, VoiceCard(language="en"), recording(1))


def _names(folder: Path, earlier: Path | None = None) -> list[str]:
    store = open_voice_store(str(folder), 9, earlier=earlier)
    assert not store.damaged(EVERYBODY)
    return [voice.name for voice in store.of(EVERYBODY)]


def test_what_was_backed_up_is_restored(home: Path) -> None:
    _add(home / NEW, "anna")
    run(["bash", "-euc", _line("tar -C ~")], home)
    shutil.rmtree(home / ".local")
    run(["bash", "-euc", _line("mkdir -p ~/.local/share/valle-serve && tar")], home)
    assert _names(home / NEW) == ["anna"]


def test_voices_of_the_old_place_are_read_and_can_be_moved(home: Path) -> None:
    _add(home / OLD, "anna")
    _add(home / NEW, "bert")
    usual = Settings(voices=str(Settings.model_fields["voices"].default))
    assert _names(Path(usual.voices), usual.earlier_voices) == ["anna", "bert"]
    assert Settings(voices=str(home / "mine")).earlier_voices is None
    run(["bash", "-euc", _line("mkdir -p ~/.local/share/valle-serve && cp")], home)
    assert _names(home / NEW) == ["anna", "bert"]
    assert not (home / OLD).exists()


def test_a_checkout_goes_back_and_forward(tmp_path: Path) -> None:
    started = tmp_path / "upstream" / "scripts" / "serve"
    started.parent.mkdir(parents=True)

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *words],
            cwd=tmp_path / "upstream",
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch", "main")
    commits = []
    for version in ("old", "new"):
        started.write_text(f"#!/bin/sh\necho {version} >served\n")
        started.chmod(0o755)
        git("add", "scripts")
        git("commit", "--quiet", "--message", version)
        commits.append(git("rev-parse", "--short=9", "HEAD"))
    git("clone", "--quiet", ".", "../mine")
    mine = tmp_path / "mine"
    (back, forward) = (
        _line("git checkout 8c8b0cce4 && scripts"),
        _line("git checkout main && git"),
    )
    for command, version in (
        (_line("git pull && scripts"), "new"),
        (back, "old"),
        (forward, "new"),
    ):
        run(["bash", "-euc", command.replace("8c8b0cce4", commits[0])], mine)
        assert (mine / "served").read_text().strip() == version


@pytest.mark.parametrize(
    ("data", "folder"),
    [
        (None, "~/.local/share/valle-serve/voices"),
        ("", "~/.local/share/valle-serve/voices"),
        ("relative", "~/.local/share/valle-serve/voices"),
        ("/data", "/data/valle-serve/voices"),
    ],
)
def test_voices_lie_in_the_users_data(data: str | None, folder: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "XDG_DATA_HOME"}
    program = "from app.settings import Settings as S; print(S.model_fields['voices'].default)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=variables if data is None else {**variables, "XDG_DATA_HOME": data},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == folder
