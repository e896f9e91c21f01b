import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from errno import ENOSPC
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError

from app.cli import COMMANDS, main
from app.commands.help import written
from app.commands.speak import Speak
from app.settings import BUILTIN_MODEL
from app.version import VERSION
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS


@pytest.mark.slow
def test_a_knob_on_the_command_line_reaches_the_sampler(tmp_path):
    for seed in ("1", "2"):
        out = str(tmp_path / seed)
        knobs = ["--temperature", "0", "--max-duration-s", "0.5", "--seed", seed]
        assert main(["speak", "Hello.", "-o", out, *knobs]) == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def _other(name, field):
    """Return a value of a knob that is not its default, and the words of its flag."""
    return OTHER.get(name) or _other_of(field.annotation, field)


OTHER = {
    "preset": "stable",
    "seed": 9,
    "logit_bias": {5: -1.5},
    "ban_tokens": [3, 4],
    "dry_sequence_breakers": [7],
    "ban_sequences": [{"codes": [1, 2], "strength": 3.0}],
    "sampler_order": "hf",
    "nar_level_temperatures": [0.5, 0.25],
}


def _other_of(kind, field):
    if kind is bool:
        return not field.default
    if get_origin(kind) is Literal:
        return next(choice for choice in reversed(get_args(kind)) if choice != field.default)
    bounded: Any = Annotated[kind, *field.metadata]
    adapter: TypeAdapter[Any] = TypeAdapter(bounded)
    for value in (1, 2, 3, 0.5, 0.25, 1.5, -0.5, 30):
        with suppress(ValidationError):
            if kind(value) == value and adapter.validate_python(value) != field.default:
                return kind(value)
    raise AssertionError(field)


def _words(value):
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)


@pytest.mark.parametrize("knob", SamplingParams.model_fields)
def test_every_knob_can_be_set_by_its_flag(knob, monkeypatch):
    """Beside what it would be in a request: what the flag's words mean is the same."""
    field = SamplingParams.model_fields[knob]
    value = _other(knob, field)
    got: list[Any] = []
    monkeypatch.setattr(Speak, "cli_cmd", got.append)
    flag = f"--{knob.replace('_', '-')}"
    words = [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else []
    assert main(["speak", "Hello.", *(words or [flag, _words(value)])]) == 0
    (said,) = got
    wanted = SamplingParams.model_validate({knob: value})
    assert getattr(said, knob) == getattr(wanted, knob) != field.default


def test_a_list_of_steps_is_an_order_too(monkeypatch):
    got: list[Any] = []
    monkeypatch.setattr(Speak, "cli_cmd", got.append)
    assert main(["speak", "Hello.", "--sampler-order", "top_k,temperature"]) == 0
    assert main(["speak", "Hello.", "--sampler-order", '["top_k"]']) == 0
    assert [said.sampler_order for said in got] == [("top_k", "temperature"), ("top_k",)]


@pytest.fixture
def help_of(capsys):
    """Return the help that some words ask for."""

    def told(*words):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0
        return capsys.readouterr().out

    return told


def test_help_is_short_and_every_knob_is_in_that_of_its_group(help_of, capsys):
    short = help_of("speak", "--help")
    assert len(short.splitlines()) < 90
    every = help_of("speak", "--help-knobs")
    for knob, field in SamplingParams.model_fields.items():
        flag = re.compile(rf"--{knob.replace('_', '-')}[ ,\n]")
        extra: Any = field.json_schema_extra
        group = extra["x-ui"]["group"]
        of_group = every.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        assert flag.search(short) or flag.search(of_group), knob
    assert "--xtc-threshold" in (one := help_of("speak", "--help-knobs", "xtc"))
    assert "--top-k" not in one
    assert main(["speak", "--help-knobs", "loud"]) == 2
    assert "no group 'loud'" in capsys.readouterr().err


def test_help_has_the_usual_knobs_and_only_flags_that_act(help_of):
    usual = ("speed", "loudness-lufs", "temperature", "top-p", "seed", "voice", "pause-s")
    short = help_of("speak", "--help")
    assert all(f"--{name} " in short for name in usual)
    places = [short.index(f"  {flag} ") for flag in ("INPUT", "-f", "-o", "--voice", "--url")]
    assert places == sorted(places)
    for command, acts, idle in (
        ("doctor", ("--port", "--model"), ("--max-queue", "--origins")),
        ("warm", ("--model", "--threads"), ("--port", "--max-queue")),
        ("batch", ("--at-once",), ("--port", "--device")),
    ):
        told = help_of(command, "--help")
        assert all(flag in told for flag in acts), command
        assert not any(flag in told for flag in idle), command


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["speak", "Hi.", "--temprature", "0.7"], "did you mean --temperature?"),
        (["warm", "--thread", "2"], "did you mean --threads?"),
        (["voices", "add", "a", "a.wav", "--consnt"], "did you mean --consent?"),
    ],
)
def test_a_misspelt_flag_is_told_what_is_meant(words, meant, capsys):
    assert main(words) == 2
    assert meant in capsys.readouterr().err


def test_presets_are_listed_and_one_is_shown(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == set(PRESETS)
    assert main(["presets", "greedy"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(PRESETS["greedy"]))
    assert main(["presets", "gredy"]) == 2
    assert "choose from" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_without_a_command_it_shows_help(words, capsys):
    with suppress(SystemExit):
        assert main(words) == 0
    told = capsys.readouterr()
    assert not told.err
    assert all(f"    {name} " in told.out for name in COMMANDS)


def test_help_of_a_command_is_that_of_its_flag(help_of, capsys):
    assert help_of("help", "keys", "new") == help_of("keys", "new", "--help")


PARTS = {"voices": ["add", "list", "remove"], "keys": ["new"], "models": ["download"]}
PARTS |= {"tools": ["inspect", "convert", "eras", "calibrate"]}
LEAVES = [(name, part) for name in COMMANDS for part in PARTS.get(name, [""])]


@pytest.mark.parametrize("words", [*LEAVES, ("speak", "--help-knobs")])
def test_help_has_no_type_of_python(words, help_of):
    asked = [word for word in words if word]
    told = help_of(*asked, *(() if "--help-knobs" in asked else ("--help",)))
    flags = re.findall(r"^ +(?:-\w [^,]+, )?--[\w.-]+ (.*?)(?: {2}|$)", told, re.MULTILINE)
    assert flags or not asked or "positional" in told or words[1] == "list" or words[0] == "warm"
    for kind in flags:
        assert not re.search(r"\b(str|int|float|bool|Path|SecretStr|None)\b|\w\[", kind), kind
    assert not re.search(r"\(default: (\)|\[|\(|\{|\*|null|None|False)", told)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("str", "TEXT"),
        ("list[int]", "N,..."),
        ("tuple[str,...]", "TEXT,..."),
        ("set[Path]", "PATH,..."),
        ("dict[int,float]", "JSON"),
        ("tuple[JSON,...]", "JSON"),
        ("{a,b}", "{a,b}"),
        ("{{a,b},tuple[{c,d},...]}", "{{a,b},NAME,...}"),
        ("{int,float}", "{N,NUMBER}"),
        ("NAME", "NAME"),
    ],
)
def test_a_type_is_told_as_it_is_written(kind, told):
    assert written(kind) == told


def _default(told, flag):
    found = re.search(rf"--{flag} NUMBER.*?(?=\n +-)", told, re.DOTALL)
    default = found and re.search(r"\(default:\s+([\w.-]+)", found[0])
    return default and default[1]


@pytest.mark.parametrize(
    ("preset", "flag"),
    [
        (preset, flag)
        for preset in ("builtin", "stable", "expressive", "hf", "llama_cpp")
        for flag in ("temperature", "top-p")
    ],
)
def test_help_has_the_defaults_of_the_preset(preset, flag, help_of, monkeypatch):
    monkeypatch.setenv("TTS_MODEL", str(BUILTIN_MODEL))
    words = [] if preset == "builtin" else ["--preset", preset]
    knob = flag.replace("-", "_")
    default = PRESETS[preset].get(knob, SamplingParams.model_fields[knob].default)
    assert float(_default(help_of("speak", *words, "--help"), flag)) == default


@pytest.mark.parametrize("words", [["--url", "http://a.example"], ["--model", "owner/name"]])
def test_of_a_model_that_is_not_here_help_has_the_knobs_own_defaults(words, help_of):
    assert float(_default(help_of("speak", *words, "--help"), "temperature")) == 1.0


@pytest.mark.parametrize("command", ["batch", "voices"])
def test_a_full_disk_is_a_line(command, monkeypatch, capsys):
    def full(self) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC), "/mnt/a")

    monkeypatch.setattr("app.commands.batch.BatchCommand.cli_cmd", full)
    monkeypatch.setattr("app.commands.voices.VoicesCommand.cli_cmd", full)
    words = ["a", "b"] if command == "batch" else ["list"]
    assert main([command, *words]) == 1
    assert (
        capsys.readouterr().err == "/mnt/a: No space left on device; free some, and run it again\n"
    )


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"valle-serve {VERSION}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, help_of):
    assert f"usage: valle-serve {name} " in help_of(name, "--help")


NOBODY = "http://127.0.0.1:9"
NO_SERVER = f"url: no server answers at {NOBODY}: "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sing"], "invalid choice: 'sing'"),
        (["speak", "Hello."], "out: name a file with -o, or - for stdout, or give --play"),
        (["speak", "Hello.", "-o", "a.wav", "--key", "k"], "key: only a server takes a key"),
        (["speak", "Hello.", "--play", "--trace"], "trace: the report is written beside a file"),
        (["speak", "Hello.", "-o", "a.wav", "--top-p", "2"], "top-p: Input should be less"),
        (["speak", "Hello.", "-o", "a.wav", "--temperature", "nan"], "temperature: Input should"),
        (["speak", "Hello.", "-o", "a.wav", "--temprature", "1"], "unrecognized arguments"),
        (["speak", "Hello.", "-o", "a.wav", "--voice", "eve"], "voice: there is no voice 'eve'"),
        (["speak", "?!", "-o", "a.wav"], "input: "),
        (["speak", "Hello.", "-o", "a.wav", "--model", "/nowhere"], "model: /nowhere"),
        (["speak", "Hello.", "-o", "/nowhere/a.wav"], "out: /nowhere is not a folder"),
        (["speak", "Hello.", "-o", "a.xyz"], "out: .xyz is not a known format; choose one of mp3,"),
        (["speak", "-o", "a.wav"], "input: give either a text"),
        (["speak", "Hello.", "-f", "a.txt", "-o", "a.wav"], "input: give either a text"),
        (["speak", "-f", "/nowhere", "-o", "a.wav"], "file: /nowhere: No such file"),
        (["speak", "-f", "/dev/null", "-o", "a.wav"], "input: the text is empty"),
        (["speak", "Hello\x07.", "-o", "a.wav", "--unreadable", "refuse"], "input: "),
        (
            [
                "speak",
                "Hello. \N{CJK UNIFIED IDEOGRAPH-4E00}.",
                "-o",
                "a.wav",
                "--unreadable",
                "refuse",
            ],
            "input: sentence 2, line 1: ",
        ),
        (["speak", "Hello.", "-o", "-", "--trace"], "trace: the report is written beside a file"),
        (["speak", "Hello.", "-o", "a.wav", "--stream"], "unrecognized arguments: --stream"),
        (["speak", "Hello.", "-o", "a.wav", "--url", NOBODY], NO_SERVER),
        (["speak", "Hello.", "--play"], "play: no player is installed; install one of pw-play,"),
        (["bench", "--at-once", "0"], "at-once.0: Input should be greater than 0"),
        (["bench", "--url", NOBODY], NO_SERVER),
        (["bench", "--url", "nothing"], "url: nothing: "),
        (["bench", "--url", NOBODY, "--model", "x"], "model: the server has its own"),
        (["bench", "--key", "secret"], "key: only a server takes a key"),
        (["batch", "/nowhere", "out", "--key", "secret"], "key: only a server takes a key"),
        (["study", "top_p=0.5", "--key", "secret"], "key: only a server takes a key"),
        (["bench", "--model", "/nowhere"], "model: /nowhere"),
        (["bench", "-o", "/nowhere/a.json"], "out: /nowhere is not a folder"),
        (["serve", "--api-keys", "short"], "api_keys: entry 1"),
        (["serve", "--api-keys-file", "/nowhere"], "api_keys_file: /nowhere: No such file"),
        (["serve", "--port", "99999"], "port: Input should be less"),
        (["serve", "--presets", "/nowhere.json"], "presets: /nowhere.json: No such file"),
        (["speak", "Hello.", "-o", "a.wav", "--preset", "loud"], "preset: unknown preset 'loud'"),
        (["tools", "calibrate", "--output", "/nowhere/a.json"], "output: /nowhere is not a folder"),
        (["tools", "calibrate", "--sentences", "/nowhere"], "sentences: /nowhere: No such file"),
        (
            ["tools", "calibrate", "--sentences", "/dev/null"],
            "sentences: /dev/null: the file has no sentences",
        ),
        (["tools", "calibrate", "--name", "stable"], "name: preset 'stable' exists already"),
        (["tools", "calibrate", "--name", "Loud!"], "name: String should match"),
        (["tools", "calibrate", "--preset", "loud"], "preset: unknown preset 'loud'"),
        (["tools", "calibrate", "--count", "0"], "count: Input should be greater"),
        (["tools", "calibrate", "--model", "/nowhere"], "model: /nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # where no player is
    assert main(arguments) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "Traceback" not in said
    if arguments:
        assert len(said.splitlines()) == 1
    assert not [one for one in tmp_path.iterdir() if one.is_file()]


def test_a_misspelt_variable_stops_every_command(monkeypatch, capsys):
    monkeypatch.setenv("TTS_PRT", "1")
    assert main(["serve"]) == 2
    assert "TTS_PRT is not a setting, did you mean TTS_PORT?" in capsys.readouterr().err


def test_a_knob_among_the_variables_is_sent_to_the_requests(monkeypatch, capsys):
    monkeypatch.setenv("TTS_TEMPERATURE", "1")
    assert main(["serve"]) == 2
    said = capsys.readouterr().err
    assert "TTS_TEMPERATURE is not a setting: temperature is a knob of each request" in said
    assert "mean" not in said


@pytest.mark.slow
def test_a_reader_who_has_left_hears_no_complaint():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app", "keys", "new", "alice"]
    told = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (told.returncode, told.stderr) == (141, b"")


@pytest.mark.parametrize("setting", ["keys", "file"])
def test_keys_that_are_configured_and_none_stop_the_service(monkeypatch, tmp_path, capsys, setting):
    """It would else serve everybody, on every interface."""
    monkeypatch.setenv("TTS_HOST", "0.0.0.0")
    monkeypatch.setenv("TTS_TEXT_PROCESS", "1")
    if setting == "keys":
        monkeypatch.setenv("TTS_API_KEYS", " , ")
    else:
        (tmp_path / "keys").write_text("# nobody yet\n")
        monkeypatch.setenv("TTS_API_KEYS_FILE", str(tmp_path / "keys"))
    for command in (["serve"], ["doctor"]):
        assert main(command) == (2 if command == ["serve"] else 1)
        told = capsys.readouterr()
        assert "no key" in told.out + told.err
