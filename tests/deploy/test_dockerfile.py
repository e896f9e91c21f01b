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
from pathlib import Path

import pytest

import hatch_build
from app.main import create_app
from app.settings import Settings
from cpu.compiling import BUILT
from tests.app.tools.serving import served, until
from tests.conftest import ROOT
from tests.deploy.container_files import (
    TARGETS,
    copied,
    env,
    image,
    last,
    settings_of,
    stages,
    text,
    volumes,
)
from tests.fakes import engine_that_loads

PROJECT = tomllib.loads(text("pyproject.toml"))
EACH = pytest.mark.parametrize("target", TARGETS)


@pytest.mark.parametrize("stage", ["packages", "itself", "files"])
def test_what_is_copied_exists_and_is_let_through(stage: str) -> None:
    allowed = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    sources = [source for sources, _ in copied(stage) for source in sources]
    assert sources
    for source in sources:
        if "[" in source:  # it is copied where it is
            source = re.sub(r"\[(.)\]", r"\1", source)
            assert any(path.startswith(f"{source}/") for path in allowed), source
            continue
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


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


def test_settings_write_where_a_volume_is(monkeypatch: pytest.MonkeyPatch) -> None:
    (home,) = {str(Path(folder).parent) for folder in volumes()}
    monkeypatch.setenv("HOME", home)
    settings = settings_of(monkeypatch, env())
    written = {Path(folder).expanduser() for folder in (settings.cache, settings.voices)}
    for folder in volumes():
        assert any(one.is_relative_to(folder) for one in written), folder
    for one in written:
        assert any(one.is_relative_to(folder) for folder in volumes()), one


@EACH
def test_variables_are_settings(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, env(target))
    assert settings.host == "0.0.0.0"
    assert str(settings.port) == last("EXPOSE", target) == env(target)["TTS_PORT"]


def test_command_is_the_projects() -> None:
    (program,) = json.loads(last("ENTRYPOINT"))
    assert program in PROJECT["project"]["scripts"]
    (command,) = json.loads(last("CMD"))
    told = subprocess.run(
        [sys.executable, "-m", "app", command, "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert told.returncode == 0, told.stderr


def _checked(told: Path) -> tuple[bool, str]:
    program, *rest = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert program == "python"
    variables = {**os.environ, "TTS_PORT_FILE": str(told), "http_proxy": "http://127.0.0.1:9"}
    asked = subprocess.run(
        [sys.executable, *rest],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not asked.stderr
    return asked.returncode == 0, asked.stdout


def test_healthcheck_says_in_one_line_how_it_is(tmp_path: Path) -> None:
    told, (engine, may_load) = tmp_path / "port", engine_that_loads()
    healthy, said = _checked(told)
    assert (healthy, said.count("\n")) == (False, 1)
    assert said.startswith("no answer: ")
    with served(create_app(Settings(), engine), until_ready=False) as client:
        told.write_text(f"{client.base_url.port}\n")
        healthy, said = _checked(told)
        assert (healthy, said.count("\n")) == (False, 1)
        assert "waiting for the model to load" in said
        may_load.set()
        until(lambda: client.get("/ready").status_code == 200)
        assert _checked(told) == (True, "ready\n")
    healthy, said = _checked(told)  # nobody listens there any more
    assert not healthy
    assert said.startswith("no answer: ")
