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
from threading import Thread

import pytest

from app.main import create_app
from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.container_files import copied, env, last, stages, text

PROJECT = tomllib.loads(text("pyproject.toml"))
TARGET = "/srv/valle-serve"


def test_base_is_pinned_to_a_python_that_the_lock_was_made_with() -> None:
    (image,) = [words for name, words in stages()[0] if name == "ARG"]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+", image)
    for stage in stages()[1:]:
        assert stage[0][1].startswith("${PYTHON_IMAGE}")


@pytest.mark.parametrize("stage", stages()[1:], ids=["build", "last"])
def test_what_is_copied_exists_and_is_let_through(stage: list[tuple[str, str]]) -> None:
    allowed = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    sources = [source for sources, _ in copied(stage) for source in sources]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_nothing_else_reaches_the_build() -> None:
    lines = [line for line in text(".dockerignore").splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert all((ROOT / line[1:]).exists() for line in lines if line.startswith("!"))


def test_every_package_is_in_the_image() -> None:
    sources = {source for sources, _ in copied(stages()[-1]) for source in sources}
    packages = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert packages | {"weights"} <= sources


def test_build_takes_the_steps_of_scripts_install() -> None:
    build = stages()[1]
    assert [words for name, words in build if name == "RUN"] == ["scripts/install"]
    read = {"pyproject.toml", "requirements.lock", PROJECT["project"]["readme"]}
    assert read <= {source for sources, _ in copied(build) for source in sources}
    (argument,) = [words for name, words in build if name == "ARG"]
    assert argument.partition("=")[0] in text("scripts/install")


def test_both_stages_work_in_one_folder() -> None:
    for stage in stages()[1:]:
        assert ("WORKDIR", TARGET) in stage
    assert ("COPY", f"--from=build {TARGET}/.venv .venv") in stages()[-1]
    assert env()["PATH"].split(":")[0] == f"{TARGET}/.venv/bin"


def test_last_stage_has_no_build_tools() -> None:
    commands = " ".join(words for name, words in stages()[-1] if name == "RUN")
    assert not re.search(r"\b(apt|apt-get|pip|gcc|make)\b", commands)


def test_it_runs_as_a_user_who_owns_the_cache() -> None:
    (user,) = [words for name, words in stages()[-1] if name == "RUN"]
    assert int(last("USER")) > 0
    name = re.search(rf"useradd --uid {last('USER')} .* (\w+) &&", user)
    assert name
    assert f"install -d -o {name[1]} -g {name[1]} {last('VOLUME')}" in user
    assert last("VOLUME").startswith(f"/home/{name[1]}/")


def test_variables_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {name: value for name, value in env().items() if name.startswith("TTS_")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = Settings()  # refuses an unknown one
    assert settings.host == "0.0.0.0"
    assert str(settings.port) == last("EXPOSE") == variables["TTS_PORT"]


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
