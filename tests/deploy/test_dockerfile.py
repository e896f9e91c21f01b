"""Every path, port, user, command and variable in the Dockerfile exists in the project."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from app.main import create_app
from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.container_files import (
    TARGETS,
    base,
    copied,
    env,
    image,
    last,
    stages,
    text,
    volumes,
)

PROJECT = tomllib.loads(text("pyproject.toml"))
FOLDER = "/srv/valle-serve"
EACH = pytest.mark.parametrize("target", TARGETS)


def test_base_is_pinned_to_a_python_that_the_lock_was_made_with() -> None:
    (argument,) = [words for name, words in stages()[""] if name == "ARG"]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+", argument)
    assert {base(stage) for stage in stages() if stage} == {"${PYTHON_IMAGE}", "cpu"}


def test_stages_are_the_build_and_the_targets_and_cuda_comes_where_none_is_named() -> None:
    assert list(stages()) == ["", "build", *TARGETS]


@pytest.mark.parametrize("stage", ["build", "cpu"])
def test_what_is_copied_exists_and_is_let_through(stage: str) -> None:
    allowed = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    sources = [source for sources, _ in copied(stage) for source in sources]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_what_is_copied_can_be_read_whatever_the_modes_of_the_checkout() -> None:
    copies = [words for name, words in stages()["cpu"] if name == "COPY"]
    assert all(words.startswith(("--chmod=755 ", "--from=build ")) for words in copies)


def test_nothing_else_reaches_the_build() -> None:
    lines = [line for line in text(".dockerignore").splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert all((ROOT / line[1:]).exists() for line in lines if line.startswith("!"))


def test_every_package_is_in_the_image() -> None:
    sources = {source for sources, _ in copied("cpu") for source in sources}
    packages = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert packages | {"weights"} <= sources


def test_build_takes_the_steps_of_scripts_install() -> None:
    build = stages()["build"]
    assert [words for name, words in build if name == "RUN"] == ["scripts/install"]
    read = {"pyproject.toml", "requirements.lock", PROJECT["project"]["readme"]}
    assert read <= {source for sources, _ in copied("build") for source in sources}
    (argument,) = [words for name, words in build if name == "ARG"]
    assert argument.partition("=")[0] in text("scripts/install")


@EACH
def test_it_works_in_the_folder_of_the_build(target: str) -> None:
    assert ("WORKDIR", FOLDER) in stages()["build"]
    assert last("WORKDIR", target) == FOLDER
    assert ("COPY", f"--from=build {FOLDER}/.venv .venv") in image(target)
    assert env(target)["PATH"].split(":")[0] == f"{FOLDER}/.venv/bin"


@EACH
def test_it_has_no_build_tools(target: str) -> None:
    commands = " ".join(words for name, words in image(target) if name == "RUN")
    assert not re.search(r"\b(apt|apt-get|pip|gcc|make)\b", commands)


@EACH
def test_it_runs_as_a_user_who_owns_what_outlives_it(target: str) -> None:
    (made,) = [words for name, words in image(target) if name == "RUN"]
    assert int(last("USER", target)) > 0
    user = re.search(rf"useradd --uid {last('USER', target)} .* (\w+) &&", made)
    assert user
    owned = re.search(rf"install -d -o {user[1]} -g {user[1]} (.+)", made)
    assert owned
    assert set(owned[1].split()) == volumes(target)
    assert all(folder.startswith(f"/home/{user[1]}/") for folder in volumes(target))


def test_settings_write_where_a_volume_is(monkeypatch: pytest.MonkeyPatch) -> None:
    (home,) = {str(Path(folder).parent) for folder in volumes()}
    monkeypatch.setenv("HOME", home)
    for name, value in env().items():
        if name.startswith("TTS_"):
            monkeypatch.setenv(name, value)
    written = {Path(folder).expanduser() for folder in (Settings().cache, Settings().voices)}
    for folder in volumes():
        assert any(one.is_relative_to(folder) for one in written), folder
    for one in written:
        assert any(one.is_relative_to(folder) for folder in volumes()), one


@EACH
def test_variables_are_settings(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {name: value for name, value in env(target).items() if name.startswith("TTS_")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = Settings()  # refuses an unknown one
    assert settings.host == "0.0.0.0"
    assert str(settings.port) == last("EXPOSE", target) == variables["TTS_PORT"]


def test_a_gpu_is_asked_for_by_its_target_alone() -> None:
    gpu = {name: value for name, value in env("cuda").items() if name not in env("cpu")}
    assert gpu == {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }


def test_command_is_the_projects() -> None:
    (program,) = json.loads(last("ENTRYPOINT"))
    assert program in PROJECT["project"]["scripts"]
    (command,) = json.loads(last("CMD"))
    told = subprocess.run(
        [sys.executable, "-m", "app", command, "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert told.returncode == 0, told.stderr


def _healthcheck() -> list[str]:
    command = last("HEALTHCHECK").partition("CMD ")[2]
    program, *rest = json.loads(command)
    assert program == "python"
    return [sys.executable, *rest]


def test_healthcheck_asks_a_route_that_exists() -> None:
    asked = re.search(r"\}(/\w+)", _healthcheck()[-1])
    assert asked
    assert asked[1] in create_app(Settings()).openapi()["paths"]


@contextmanager
def _server(status: int) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_healthcheck_says_how_it_is(status: int, healthy: bool) -> None:
    with _server(status) as port:
        variables = {**os.environ, "TTS_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        asked = subprocess.run(_healthcheck(), env=variables, capture_output=True, timeout=30)
    assert (asked.returncode == 0) is healthy
