"""The compose files are valid, agree with the Dockerfile, and .env.example names what they read."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.settings import BUILTIN_MODEL, Settings
from scripts import gen_docs
from tests.deploy.container_files import (
    TARGETS,
    compose,
    env,
    last,
    settings_of,
    stages,
    text,
    volumes,
)

GPU = ("docker-compose.yml",)
CPU = ("docker-compose.yml", "docker-compose.cpu.yml")
WATCHED = (*CPU, "docker-compose.observability.yml")
CARDS = (*GPU, "docker-compose.cards.yml")
SHARED_CARD = (*CARDS, "docker-compose.shared-card.yml")
EVERY = pytest.mark.parametrize("files", [GPU, CPU, WATCHED], ids=["gpu", "cpu", "watched"])
BOTH = pytest.mark.parametrize("files", [GPU, CPU], ids=["gpu", "cpu"])


def _service(files: tuple[str, ...]) -> dict[str, Any]:
    service = compose(*files)["services"]["tts"]
    assert isinstance(service, dict)
    return service


def _defaults(value: str) -> str:
    """Return a value as compose reads it where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.mark.parametrize(
    "files", [GPU, CPU, WATCHED, CARDS, SHARED_CARD], ids=lambda files: files[-1]
)
def test_every_combination_of_compose_files_keeps_the_schema(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    merged = tmp_path / "compose.json"
    merged.write_text(json.dumps(compose(*files)))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    told = subprocess.run([*check, str(merged)], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


@BOTH
def test_it_agrees_with_the_image(files: tuple[str, ...]) -> None:
    service = _service(files)
    (port,) = service["ports"]
    assert port.rpartition(":")[2] == last("EXPOSE") == service["environment"]["TTS_PORT"]
    mounts = dict(volume.split(":") for volume in service["volumes"])
    assert set(mounts.values()) == volumes()
    assert mounts.keys() <= compose(*files)["volumes"].keys()
    arguments = {words.partition("=")[0] for stage in stages().values() for _, words in stage}
    assert set(service["build"]["args"]) <= arguments


@BOTH
def test_target_is_one_of_the_dockerfile_and_names_the_image(files: tuple[str, ...]) -> None:
    service = _service(files)
    assert service["build"]["target"] == ("cuda" if files == GPU else "cpu")
    assert service["build"]["target"] in TARGETS
    assert _defaults(service["image"]) == f"valle-serve:{service['build']['target']}"


@BOTH
def test_variables_are_settings(files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**env(), **_service(files)["environment"]}
    settings = settings_of(
        monkeypatch, {name: value and _defaults(value) for name, value in variables.items()}
    )
    assert settings.host == "0.0.0.0"
    assert Path(settings.model).resolve() == BUILTIN_MODEL  # the folder of the image is the root


def test_no_variable_without_a_default_is_asked_for() -> None:
    """Compose warns of each, at every command."""
    for file in (*WATCHED, "docker-compose.cards.yml", "docker-compose.shared-card.yml"):
        inside = re.findall(r"\$(?:\{\w+\}|\w+)", text(file))
        assert not inside, file


@BOTH
def test_it_waits_for_running_requests(files: tuple[str, ...]) -> None:
    assert int(_service(files)["stop_grace_period"].rstrip("s")) > Settings().drain_timeout_s


@EVERY
def test_no_service_has_more_rights_than_it_needs(files: tuple[str, ...]) -> None:
    for service in compose(*files)["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc"}


@EVERY
def test_every_port_is_of_this_machine_alone(files: tuple[str, ...]) -> None:
    for service in compose(*files)["services"].values():
        for port in service["ports"]:
            assert _defaults(port).startswith("127.0.0.1:")


@BOTH
def test_nothing_is_written_but_to_volumes_and_tmp(files: tuple[str, ...]) -> None:
    service = _service(files)
    assert service["read_only"] is True
    (tmp,) = service["tmpfs"]
    folder, _, options = tmp.partition(":")
    assert folder == "/tmp"
    assert "exec" in options.split(",")


def test_a_gpu_is_asked_for_unless_the_override_is_laid_over() -> None:
    (device,) = _service(GPU)["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert "devices" not in _service(CPU)["deploy"]["resources"]["reservations"]
    assert _service(GPU)["environment"]["TTS_DEVICE"] == "cuda"  # auto would serve from the CPU
    assert _service(CPU)["environment"]["TTS_DEVICE"] == "cpu"


def _example() -> dict[str, str]:
    lines = re.findall(r"^# ([A-Z_]+)=(.*)$", text(".env.example"), flags=re.MULTILINE)
    return dict(lines)


def _passed_on() -> set[str]:
    """Return what a container gets as the shell or .env has it."""
    return {name for name, value in _service(GPU)["environment"].items() if value is None}


def test_what_a_model_of_the_hub_needs_is_passed_on() -> None:
    wanted = {"TTS_DECODER", "TTS_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"}
    assert _passed_on() == wanted | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}


def test_no_line_of_the_example_leads_out_of_the_volumes_or_names_one_image_the_other() -> None:
    service = _service(CPU)
    for name in ("TTS_HOST", "TTS_PORT", "TTS_PORT_FILE", "TTS_VOICES", "TTS_CACHE"):
        assert service["environment"][name]
        assert name not in _example()
    kept = [volume.partition(":")[2] for volume in service["volumes"]]
    for name in ("TTS_VOICES", "TTS_CACHE"):
        assert any(Path(service["environment"][name]).is_relative_to(one) for one in kept)
    assert _service(GPU)["image"].partition("{")[2] != service["image"].partition("{")[2]


def test_example_names_what_the_files_read() -> None:
    read = {name for file in WATCHED for name in re.findall(r"\$\{(\w+)", text(file))}
    read |= _passed_on()
    ours = {name for name in _example() if not name.startswith("TTS_")}
    read.add("COMPOSE_FILE")  # by Compose itself
    assert {name for name in read if not name.startswith("TTS_")} == ours
    assert read <= _example().keys()


def test_the_example_of_variables_shows_the_defaults_of_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {name: value for name, value in _example().items() if name.startswith("TTS_")}
    defaults = Settings.model_construct()
    settings = settings_of(monkeypatch, shown)
    fixed = {f"TTS_{name.upper()}" for name in gen_docs.FIXED_IN_CONTAINER}
    assert set(shown) | fixed == {f"TTS_{name.upper()}" for name in Settings.model_fields}
    assert settings.model_dump(exclude={"model"}) == defaults.model_dump(exclude={"model"})
    assert Path(settings.model).resolve() == Path(defaults.model).resolve()
