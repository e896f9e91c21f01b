import os
import socket
import subprocess
import sys

import httpx
import pytest

from app.cli import main
from samplers.params import SamplingParams
from tests.app.serving import until


@pytest.fixture(autouse=True)
def _environment(monkeypatch, toy):
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")


def test_a_knob_on_the_command_line_reaches_the_sampler(tmp_path):
    for seed in ("1", "2"):
        out = str(tmp_path / seed)
        knobs = ["--temperature", "0", "--max-duration-s", "0.5", "--seed", seed]
        assert main(["speak", "Hello.", "-o", out, *knobs]) == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_every_knob_is_a_flag(capsys):
    with pytest.raises(SystemExit) as end:
        main(["speak", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for knob in SamplingParams.model_fields:
        assert f"--{knob.replace('_', '-')}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "subcommand is required"),
        (["sing"], "invalid choice: 'sing'"),
        (["speak", "Hello."], "-o/--out"),
        (["speak", "Hello.", "-o", "a.wav", "--top-p", "2"], "top-p: Input should be less"),
        (["speak", "Hello.", "-o", "a.wav", "--temperature", "nan"], "temperature: Input should"),
        (["speak", "Hello.", "-o", "a.wav", "--temprature", "1"], "unrecognized arguments"),
        (["speak", "Hello.", "-o", "a.wav", "--voice", "eve"], "voice: there is no voice 'eve'"),
        (["speak", "?!", "-o", "a.wav"], "input: "),
        (["speak", "Hello.", "-o", "a.wav", "--model", "/nowhere"], "model: /nowhere"),
        (["speak", "Hello.", "-o", "/nowhere/a.wav"], "out: /nowhere is no folder"),
        (["serve", "--port", "99999"], "port: Input should be less"),
        (["serve", "--presets", "/nowhere.json"], "presets: /nowhere.json: No such file"),
        (["speak", "Hello.", "-o", "a.wav", "--preset", "loud"], "preset: unknown preset 'loud'"),
        (["calibrate", "--output", "/nowhere/a.json"], "output: /nowhere is no folder"),
        (["calibrate", "--sentences", "/nowhere"], "sentences: /nowhere: No such file"),
        (["calibrate", "--sentences", "/dev/null"], "sentences: /dev/null: there is no sentence"),
        (["calibrate", "--name", "stable"], "name: there is a preset 'stable' already"),
        (["calibrate", "--name", "Loud!"], "name: String should match"),
        (["calibrate", "--preset", "loud"], "preset: unknown preset 'loud'"),
        (["calibrate", "--count", "0"], "count: Input should be greater"),
        (["calibrate", "--model", "/nowhere"], "model: /nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "Traceback" not in said
    if arguments:
        assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_misspelt_variable_stops_every_command(monkeypatch, capsys):
    monkeypatch.setenv("TTS_PRT", "1")
    assert main(["serve"]) == 2
    assert "TTS_PRT is not a setting, did you mean TTS_PORT?" in capsys.readouterr().err


def test_a_reader_who_has_left_hears_no_complaint():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app", "keys", "new", "alice"]
    told = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (told.returncode, told.stderr) == (141, b"")


def test_serve_answers_and_ends_when_it_is_told_to(toy):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app", "serve", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:

            def ready() -> bool:
                assert process.poll() is None
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
                except httpx.ConnectError:
                    return False

            until(ready)
            answer = httpx.post(
                f"http://127.0.0.1:{port}/tts",
                json={"input": "Hello.", "max_duration_s": 0.5},
                timeout=60,
            )
            assert answer.content.startswith(b"RIFF")
        finally:
            process.terminate()
            _, log = process.communicate(timeout=60)
    assert process.returncode in {0, -15}
    assert "ready: " in log
    assert "Hello" not in log  # what people say is not written down


@pytest.mark.parametrize("setting", ["keys", "file"])
def test_keys_that_are_configured_and_none_stop_the_service(monkeypatch, tmp_path, capsys, setting):
    """It would else serve everybody, on every interface."""
    monkeypatch.setenv("TTS_HOST", "0.0.0.0")
    if setting == "keys":
        monkeypatch.setenv("TTS_API_KEYS", " , ")
    else:
        (tmp_path / "keys").write_text("# nobody yet\n")
        monkeypatch.setenv("TTS_API_KEYS_FILE", str(tmp_path / "keys"))
    for command in (["serve"], ["doctor"]):
        assert main(command) == (2 if command == ["serve"] else 1)
        told = capsys.readouterr()
        assert "no key" in told.out + told.err
