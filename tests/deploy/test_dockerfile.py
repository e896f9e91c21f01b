"""Every path, port, user, command and variable in the Dockerfile exists in the project.

What its layers hold, and that an edit compiles and installs nothing, is seen of the image itself:
`tests/deploy/image`.
"""

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

import hatch_build
from app.main import create_app
from app.settings import Settings
from models.int8.compiling import BUILT
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
    assert {base(stage) for stage in stages() if stage} == {
        "${PYTHON_IMAGE}",
        "packages",
        "runtime",
    }


@pytest.mark.parametrize("stage", ["packages", "itself", "files"])
def test_what_is_copied_exists_and_is_let_through(stage: str) -> None:
    allowed = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    sources = [source for sources, _ in copied(stage) for source in sources]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_what_is_downloaded_is_kept_between_builds_and_may_come_from_a_mirror() -> None:
    runs = [words for stage in ("packages", "itself") for words in _runs(stage)]
    kept = "--mount=type=cache,target=/root/.cache/pip"
    mirror = "--mount=type=secret,id=pip,target=/etc/pip.conf"
    assert all(words.startswith(f"{kept} {mirror} ") for words in runs)


def _runs(stage: str) -> list[str]:
    return [words for name, words in stages()[stage] if name == "RUN"]


def test_every_package_is_in_the_image() -> None:
    sources = {source for sources, _ in copied("files") for source in sources}
    assert {*hatch_build.FOLDERS, "valle_serve"} <= sources


def test_build_has_what_the_steps_of_scripts_install_read() -> None:
    steps = [*copied("packages"), *copied("itself")]
    sources = {source for sources, _ in steps for source in sources}
    read = {"pyproject.toml", "hatch_build.py"}
    read |= set(re.findall(r"requirements\.[a-z.]*[a-z]", text("scripts/install")))
    assert read <= sources
    (argument,) = [words for name, words in stages()["index"] if name == "ARG"]
    assert argument.partition("=")[0] in text("scripts/install")


@EACH
def test_it_has_no_build_tools_but_the_compiler_that_kernels_for_a_gpu_take(target: str) -> None:
    commands = " ".join(words for name, words in image(target) if name == "RUN")
    found = set(re.findall(r"(?<![/=])\b(apt-get|apt|pip|gcc|libc6-dev|make)\b(?!\.)", commands))
    assert found == ({"apt-get", "gcc", "libc6-dev"} if target == "cuda" else set())


@EACH
def test_it_runs_as_a_user_who_owns_what_outlives_it_and_as_any_other(target: str) -> None:
    """OpenShift runs images as any user, in group 0, whom /etc/passwd does not know."""
    (made,) = [words for name, words in stages()["runtime"] if name == "RUN"]
    user, group = last("USER", target).split(":")
    assert int(user) > 0
    assert group == "0"
    name = re.search(rf"useradd --uid {user} --gid 0 .* (\w+) &&", made)
    assert name
    owned = re.search(rf"install -d -o {name[1]} -g 0 -m 2775 (.+)", made)
    assert owned
    home, *folders = owned[1].split()
    assert set(folders) == volumes(target)
    assert all(Path(folder).is_relative_to(home) for folder in folders)
    assert env(target)["HOME"] == home == f"/home/{name[1]}"
    (compiled,) = [words for name, words in stages()["kernels"] if name == "RUN"]
    assert compiled.endswith("chmod -R u=rwX,go=rX /compiled")


@EACH
def test_what_is_given_to_the_build_is_in_no_history(target: str) -> None:
    """An argument is told beside every RUN of its stage that comes after it."""
    assert not [words for name, words in image(target) if name == "ARG"]
    assert BUILT == ROOT / "kernels"  # beside the sources, not in a folder that a volume may hide


def test_labels_tell_what_it_is() -> None:
    labels = last("LABEL", "cpu") + text("docs/gpu-host.md")  # those of a version when it is built
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


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
    module = _healthcheck()[-1].replace(".", "/")
    asked = re.search(r"\}(/\w+)\"", text(f"{module}.py"))
    assert asked
    assert asked[1] in create_app(Settings()).openapi()["paths"]


@contextmanager
def _server(status: int, body: bytes) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/ready" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def _checked(told: Path) -> tuple[bool, str]:
    variables = {**os.environ, "TTS_PORT_FILE": str(told), "http_proxy": "http://127.0.0.1:9"}
    asked = subprocess.run(
        _healthcheck(), env=variables, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert not asked.stderr
    return asked.returncode == 0, asked.stdout


def test_healthcheck_says_in_one_line_how_it_is(tmp_path: Path) -> None:
    told = tmp_path / "port"
    healthy, said = _checked(told)
    assert (healthy, said.count("\n")) == (False, 1)
    assert said.startswith("no answer: ")
    loading = json.dumps({"error": {"message": "the model is loading"}}).encode()
    for status, body, expected in (
        (200, b"{}", (True, "ready\n")),
        (503, loading, (False, "the model is loading\n")),
    ):
        with _server(status, body) as port:
            told.write_text(f"{port}\n")
            assert _checked(told) == expected
    healthy, said = _checked(told)  # nobody listens there any more
    assert not healthy
    assert said.startswith("no answer: ")
