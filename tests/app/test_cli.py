import io
import json
import socket
import subprocess
import sys

import httpx
import pytest
import soundfile

from app.cli import main
from samplers.params import SamplingParams
from tests.app.serving import until


@pytest.fixture(autouse=True)
def _environment(monkeypatch, toy):
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")


def test_speak_writes_a_wav_and_says_what_repeats_it(tmp_path, capsys):
    out = tmp_path / "a.wav"
    assert main(["speak", "Hello.", "-o", str(out), "--max-duration-s", "0.5", "--seed", "9"]) == 0
    info = soundfile.info(out)
    assert (info.samplerate, info.channels, info.subtype) == (24_000, 1, "PCM_16")
    said = capsys.readouterr().err
    assert "seed 9" in said
    assert "voice toy" in said
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]


def test_speak_with_trace_writes_the_account_beside_the_sound(tmp_path):
    out = tmp_path / "a.wav"
    assert main(["speak", "Hello.", "-o", str(out), "--max-duration-s", "0.2", "--trace"]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.wav", "a.wav.json"]
    report = json.loads((tmp_path / "a.wav.json").read_text())
    assert report["request"]["input"] == "Hello."
    assert report["utterances"][0]["tokens"]


def test_speak_reads_stdin(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello."))
    assert main(["speak", "-", "-o", str(tmp_path / "a.wav"), "--max-duration-s", "0.2"]) == 0
    assert (tmp_path / "a.wav").exists()


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


def test_doctor_finds_nothing_wrong(capsys):
    assert main(["doctor", "--port", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", f"{check}:"] for check in ("python", "device", "espeak", "model", "presets", "port")
    ]


def test_doctor_says_what_to_do(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as end:
            main(["doctor", "--port", port, "--model", "/nowhere"])
    assert end.value.code == 1
    text = capsys.readouterr().out
    assert "FAIL  model: /nowhere" in text
    assert "TTS_MODEL" in text
    assert "TTS_PORT" in text


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
