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

import hatch_build
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
    assert list(stages()) == ["", "build", "files", *TARGETS]


@pytest.mark.parametrize("stage", ["build", "files"])
def test_what_is_copied_exists_and_is_let_through(stage: str) -> None:
    allowed = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    sources = [source for sources, _ in copied(stage) for source in sources]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_what_is_copied_can_be_read_whatever_the_modes_of_the_checkout() -> None:
    """And no file of data can be run."""
    assert stages()["files"][-1] == ("RUN", "chmod -R u=rwX,go=rX .")
    assert not copied("cpu")  # from the other stages alone
    assert {source for sources, _ in copied("files") for source in sources} == {
        source.removeprefix(f"{FOLDER}/")
        for name, words in stages()["cpu"]
        if name == "COPY" and "--from=files" in words
        for source in words.split()[1:-1]
    }


def _steps(stage: str) -> list[tuple[str, set[str]]]:
    """Return each RUN of a stage, with what was copied before it."""
    steps, there = [], set[str]()
    for name, words in stages()[stage]:
        if name == "COPY" and "--from" not in words:
            there |= {word for word in words.split()[:-1] if not word.startswith("--")}
        elif name == "RUN":
            steps.append((words.rpartition(" scripts/install ")[2], set(there)))
    return steps


def test_an_edit_installs_nothing_again() -> None:
    """A layer is made anew if what was copied before it changed."""
    steps = dict(_steps("build"))
    assert list(steps) == ["torch", "packages", "itself"]
    script = text("scripts/install")
    for part, there in steps.items():
        assert f"    {part})" in script
        assert "README.md" not in there or part == "itself"
        assert not {"app", "models", "samplers"} & there
    assert steps["torch"] == {"scripts/install", "requirements.lock"}
    assert steps["packages"] == steps["torch"] | {"requirements.service.txt"}


def test_what_is_downloaded_is_kept_between_builds() -> None:
    commands = [words for name, words in stages()["build"] if name == "RUN"]
    assert all(
        words.startswith("--mount=type=cache,target=/root/.cache/pip ") for words in commands
    )


def test_nothing_else_reaches_the_build() -> None:
    lines = [line for line in text(".dockerignore").splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert all((ROOT / line[1:]).exists() for line in lines if line.startswith("!"))


def test_every_package_is_in_the_image() -> None:
    sources = {source for sources, _ in copied("files") for source in sources}
    assert {*hatch_build.FOLDERS, "valle_serve"} <= sources


def test_build_has_what_the_steps_of_scripts_install_read() -> None:
    build = stages()["build"]
    sources = {source for sources, _ in copied("build") for source in sources}
    read = {"pyproject.toml", "hatch_build.py", PROJECT["project"]["readme"]}
    read |= set(re.findall(r"requirements\.[a-z.]*[a-z]", text("scripts/install")))
    assert read <= sources
    (argument,) = [words for name, words in build if name == "ARG"]
    assert argument.partition("=")[0] in text("scripts/install")


def test_the_index_of_another_build_of_torch_is_asked_beside_the_usual_one() -> None:
    """That of PyTorch has not the versions of other packages that the lock names."""
    (line,) = [line for line in text("scripts/install").splitlines() if "TORCH_INDEX_URL" in line]
    assert '${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"}' in line


@EACH
def test_it_works_in_the_folder_of_the_build(target: str) -> None:
    assert ("WORKDIR", FOLDER) in stages()["build"]
    assert last("WORKDIR", target) == FOLDER
    assert ("COPY", f"--from=build {FOLDER}/.venv .venv") in image(target)
    assert env(target)["PATH"].split(":")[0] == f"{FOLDER}/.venv/bin"


@EACH
def test_it_has_no_build_tools_but_the_compiler_that_kernels_for_a_gpu_take(target: str) -> None:
    commands = " ".join(words for name, words in image(target) if name == "RUN")
    found = set(re.findall(r"(?<!/)\b(apt-get|apt|pip|gcc|libc6-dev|make)\b", commands))
    assert found == ({"apt-get", "gcc", "libc6-dev"} if target == "cuda" else set())


@EACH
def test_it_runs_as_a_user_who_owns_what_outlives_it_and_as_any_other(target: str) -> None:
    """OpenShift runs images as any user, in group 0, whom /etc/passwd does not know."""
    made, warmed, *_ = [words for name, words in image(target) if name == "RUN"]
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
    assert warmed == f"valle-serve warm && chmod -R g+w {home}/.cache"


def test_labels_tell_what_it_is() -> None:
    labels = last("LABEL", "cpu")
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


def test_a_gpu_is_asked_for_by_its_target_alone() -> None:
    gpu = {name: value for name, value in env("cuda").items() if name not in env("cpu")}
    assert gpu == {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "CUDA_CACHE_PATH": "/home/tts/.cache/cuda",
        "TRITON_CACHE_DIR": "/home/tts/.cache/triton",
        "TTS_DEVICE": "cuda",
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
def test_healthcheck_says_how_it_is(status: int, healthy: bool, tmp_path: Path) -> None:
    with _server(status) as port:
        told = tmp_path / "port"
        told.write_text(f"{port}\n")
        variables = {**os.environ, "TTS_PORT_FILE": str(told), "http_proxy": "http://127.0.0.1:9"}
        asked = subprocess.run(_healthcheck(), env=variables, capture_output=True, timeout=30)
    assert (asked.returncode == 0) is healthy
