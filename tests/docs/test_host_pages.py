"""Commands of the pages on the command line and on hosts: every flag, file and variable exists."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from app.cli import COMMANDS, main
from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.container_files import compose, parsed, text
from tests.docs.pages import blocks

PAGES = ("docs/cli.md", "docs/quick-start.md", "docs/gpu-host.md")
SERVICES = compose("docker-compose.yml", "docker-compose.observability.yml")["services"]


def _lines(first: str) -> list[list[str]]:
    """Return the words of each command whose program is so named, from its name on."""
    scripts = [block.replace("\\\n", " ") for page in PAGES for block in blocks(page, "sh")]
    commands = [
        part for script in scripts for line in script.splitlines() for part in line.split("|")
    ]
    found = []
    for words in map(shlex.split, commands):
        names = [Path(word).name for word in words if "=" not in word]
        if names[:1] == [first]:
            found.append(words)
    return found


def _ours() -> list[list[str]]:
    """Return the arguments of every `valle-serve`, those inside a container too."""
    inside = []
    for words in _lines("docker"):
        if "compose" not in words:
            continue
        rest = words[words.index("compose") + 1 :]
        if "tts" in rest:
            after = rest[rest.index("tts") + 1 :]
            inside.append(after[1:] if after[0] == "valle-serve" else after)
    return [words[1:] for words in _lines("valle-serve")] + inside


@cache
def _help(*command: str) -> str:
    said = ""
    for flag in ("--help", *(["--help-knobs"] if command == ("speak",) else [])):
        told = subprocess.run(
            [sys.executable, "-m", "app", *command, flag], capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
        said += told.stdout
    return said


@pytest.mark.parametrize("arguments", _ours(), ids=" ".join)
def test_commands_and_their_flags_exist(arguments: list[str]) -> None:
    nested = arguments[0] in {"voices", "keys", "models"}
    command = arguments[: 2 if nested else 1]
    for flag in [word for word in arguments if re.match(r"--?[a-z]", word)]:
        assert re.search(rf"(?<![\w-]){flag}[ ,]", _help(*command)), flag


def test_commands_are_those_of_the_program() -> None:
    table = text("docs/cli.md").partition("| command |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == set(COMMANDS)


def test_checks_of_doctor_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--port", "0", "--model", "/nowhere"])
    checks = set(re.findall(r"^\w+ +(\w+):", capsys.readouterr().out, flags=re.MULTILINE))
    table = text("docs/cli.md").partition("| check |")[2]
    told = {
        name
        for row in re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)
        for name in row.split(", ")
    }
    assert checks - {"python"} == told


@pytest.mark.parametrize("words", _lines("docker"), ids=" ".join)
def test_compose_files_and_services_exist(words: list[str]) -> None:
    files = [word for flag, word in pairwise(words) if flag == "-f"]
    assert all((ROOT / file).is_file() for file in files)
    if "compose" not in words:
        assert words[words.index("docker") + 1] in {"build", "buildx", "run"}
        return
    verb = next(
        word for word in words[words.index("compose") + 1 :] if word in {"up", "run", "exec"}
    )
    if verb != "up":
        assert SERVICES.keys() & set(words)


def test_a_container_without_compose_is_started_as_compose_starts_it() -> None:
    """With the engine's own ten seconds at a stop, every stream would be cut."""
    (words,) = [words for words in _lines("docker") if words[1] == "run"]
    flags = [(flag, value) for flag, value in pairwise(words) if flag.startswith("-")]
    service = SERVICES["tts"]
    asked = dict(flags)
    assert asked["--stop-timeout"] == service["stop_grace_period"].rstrip("s")
    assert asked["--restart"] == service["restart"]
    assert asked["--tmpfs"] == service["tmpfs"][0]
    assert [asked["--cap-drop"]] == service["cap_drop"]
    assert [asked["--security-opt"]] == service["security_opt"]
    assert {"--init", "--read-only", "--gpus"} <= asked.keys()
    assert {value for flag, value in flags if flag == "-v"} == set(service["volumes"])
    assert asked["-p"] == "127.0.0.1:8000:8000"


@pytest.mark.parametrize("page", PAGES)
def test_variables_are_settings_or_those_of_compose(page: str) -> None:
    named = set(re.findall(r"\b(TTS_[A-Z_]+)\b", text(page)))
    assert named <= {f"TTS_{name.upper()}" for name in Settings.model_fields}
    example = text(".env.example")
    for name in ("BIND", "PORT", "TAG", "CPU_TAG", "TORCH_INDEX_URL"):
        assert f"# {name}=" in example


def test_an_upgrade_starts_the_container_by_the_command_of_its_first_start() -> None:
    started, upgraded = (
        [
            line.replace("valle-serve:COMMIT", "valle-serve:cuda")
            for block in blocks(page, "sh")
            for line in block.replace("\\\n", " ").splitlines()
            if line.startswith("docker run --gpus")
        ]
        for page in ("docs/gpu-host.md", "docs/upgrade.md")
    )
    assert len(started) == 1
    assert started == upgraded


@pytest.mark.parametrize("block", blocks("docs/gpu-host.md", "yaml"))
def test_overrides_are_valid(block: str, tmp_path: Path) -> None:
    override = tmp_path / "override.json"
    override.write_text(json.dumps(parsed(block)))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    told = subprocess.run([*check, str(override)], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
    assert parsed(block)["services"].keys() <= SERVICES.keys()
