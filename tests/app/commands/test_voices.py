"""The operator's commands and the service see the same voices."""

from pathlib import Path

import pytest

from app.cli import main
from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.speech_like import packed, speech_like


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Path) -> Path:
    monkeypatch.setenv("TTS_VOICES", str(tmp_path / "voices"))
    monkeypatch.setenv("TTS_MODEL", str(toy))
    return tmp_path / "voices"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "anna.ogg"
    path.write_bytes(packed(speech_like(1.5), format="OGG"))
    return str(path)


def run(*arguments: str) -> int:
    return main(["voices", *arguments])


def test_what_is_added_is_listed_and_can_be_removed(folder, file, capsys) -> None:
    assert run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(" builtin " in line for line in lines[1:])
    assert run("add", "anna", file, "--consent", "--title", "Anna B.") == 0
    assert run("add", "anna", file, "--consent", "--owner", "ben") == 0
    capsys.readouterr()
    assert run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    uploads = [line for line in lines if " upload " in line]
    assert [line.split()[:5] for line in uploads] == [
        ["anna", "upload", "everybody", "1.5", "en"],
        ["anna", "upload", "ben", "1.5", "en"],
    ]
    assert uploads[0].endswith("Anna B.")
    assert run("remove", "anna") == 0
    assert run("remove", "anna", "--owner", "ben") == 0
    assert not list(folder.rglob("*.flac"))


@pytest.mark.slow
def test_a_running_service_sees_what_is_added_and_removed(folder, file) -> None:
    with served(create_app(Settings(device="cpu"))) as client:

        def ask() -> int:
            return client.get("/v1/audio/voices/anna").status_code

        assert ask() == 404
        assert run("add", "anna", file, "--consent") == 0
        assert ask() == 200
        body = {"input": "Hi.", "voice": "anna", "max_duration_s": 0.2}
        assert client.post("/tts", json=body).headers["x-voice"] == "anna"
        assert run("remove", "anna") == 0
        assert ask() == 404


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "anna", "FILE"], "consent: give --consent"),
        (["add", "../anna", "FILE", "--consent"], "name: a voice's name may have"),
        (["add", "alloy", "FILE", "--consent"], "name: alloy is the name of a built-in"),
        (["add", "toy", "FILE", "--consent"], "name: toy is the name of a built-in"),
        (["add", "anna", "/nonexistent.wav", "--consent"], "file: /nonexistent.wav: No such"),
        (["add", "anna", __file__, "--consent"], "send WAV, FLAC, MP3 or OGG"),
        (
            ["add", "anna", "FILE", "--consent", "--owner", "../x"],
            "an owner's name may have letters",
        ),
        (["remove", "anna"], "name: everybody has no uploaded voice 'anna'"),
        (["remove", "anna", "--owner", "../x"], "owner: an owner's name may have letters"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(folder, file, capsys, arguments, message) -> None:
    assert run(*(file if argument == "FILE" else argument for argument in arguments)) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not list(folder.rglob("*.flac"))
