"""The compose files are valid, agree with the Dockerfile, and .env.example names what they read."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.deploy.container_files import compose, env, last, stages, text

GPU = ("docker-compose.yml",)
CPU = ("docker-compose.yml", "docker-compose.cpu.yml")
BOTH = pytest.mark.parametrize("files", [GPU, CPU], ids=["gpu", "cpu"])


def _service(files: tuple[str, ...]) -> dict[str, Any]:
    (service,) = compose(*files)["services"].values()
    assert isinstance(service, dict)
    return service


@BOTH
def test_it_is_valid(files: tuple[str, ...], tmp_path: Path) -> None:
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
    (volume,) = service["volumes"]
    name, _, folder = volume.partition(":")
    assert folder == last("VOLUME")
    assert name in compose(*files)["volumes"]
    arguments = {words.partition("=")[0] for stage in stages() for n, words in stage if n == "ARG"}
    assert set(service["build"]["args"]) <= arguments


@BOTH
def test_variables_are_settings(files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**env(), **_service(files)["environment"]}.items():
        if name.startswith("TTS_"):
            monkeypatch.setenv(name, value)
    assert Settings().host == "0.0.0.0"


@BOTH
def test_it_waits_for_running_requests(files: tuple[str, ...]) -> None:
    assert int(_service(files)["stop_grace_period"].rstrip("s")) > Settings().drain_timeout_s


def test_a_gpu_is_asked_for_unless_the_override_is_laid_over() -> None:
    (device,) = _service(GPU)["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert "devices" not in _service(CPU)["deploy"]["resources"]["reservations"]
    assert _service(CPU)["environment"]["TTS_DEVICE"] == "cpu"


def _example() -> dict[str, str]:
    lines = re.findall(r"^# ([A-Z_]+)=(.*)$", text(".env.example"), flags=re.MULTILINE)
    return dict(lines)


def test_example_names_what_the_files_read() -> None:
    read = {name for file in CPU for name in re.findall(r"\$\{(\w+)", text(file))}
    ours = {name for name in _example() if not name.startswith("TTS_")}
    assert read == ours


def test_example_shows_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {name: value for name, value in _example().items() if name.startswith("TTS_")}
    defaults = Settings()
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    fixed = set(_service(GPU)["environment"])
    assert set(shown) | fixed == {f"TTS_{name.upper()}" for name in Settings.model_fields}
    assert Settings().model_dump(exclude={"model"}) == defaults.model_dump(exclude={"model"})
    assert Path(Settings().model).resolve() == Path(defaults.model).resolve()
