"""What `pip wheel` makes takes one name of site-packages, and works beside a user's `app`."""

import os
import shutil
import signal
import site
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
import soundfile

from app.version import NOTE, REVISION, VERSION
from tests.app.tools.serving import free_port
from tests.conftest import ROOT
from tests.docs.test_library_page import PROGRAMS
from tests.speech_like import packed, speech_like

pytestmark = pytest.mark.slow

hatch_build: Any = pytest.importorskip(
    "hatch_build", reason="scripts/lock has hatchling; a wheel is built with it"
)

DECOYS = ("app", "cpu", "gpu", "models", "samplers", "tools")
"""Names of packages that a user of the wheel has."""

IS_THE_USERS = f"""
import {", ".join(DECOYS)}
assert {{module.OWNER for module in ({", ".join(DECOYS)})}} == {{"the user"}}
"""

TESTS = (
    "tests/samplers/ops",
    "tests/samplers/knobs/test_resolve.py",
    "tests/models/text/test_ssml.py",
    "tests/app/engine/test_child_process.py",
)
"""Tests that read no other file of the checkout."""

QUICK = {"TTS_DEVICE": "cpu", "TTS_WEIGHTS": "float32"}
"""Settings with which little is compiled: what samples."""


class Installed(NamedTuple):
    """An environment with the wheel, and what its processes see of the user's."""

    programs: Path
    variables: dict[str, str]

    def run(
        self, program: str, *words: str, folder: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder to its end."""
        return subprocess.run(
            [str(self.programs / program), *words],
            cwd=folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=280,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made by the build tools that are installed here."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=250)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def decoys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's packages."""
    folder = tmp_path_factory.mktemp("decoys")
    for name in DECOYS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text('OWNER = "the user"\n')
    return folder


@pytest.fixture(scope="module", params=["decoys first", "decoys last"])
def installed(
    request: pytest.FixtureRequest,
    wheel: Path,
    decoys: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Installed:
    """An environment with the wheel, the dependencies of this one, and decoys on the path."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    (packages,) = place.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    first = f"import sys; sys.path.insert(0, {str(decoys)!r})"
    line = first if request.param == "decoys first" else str(decoys)
    (packages / "zz_decoys.pth").write_text(line)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, timeout=250)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("TTS_")
    }
    return Installed(place / "bin", variables)


def test_wheel_holds_every_file_of_the_service_under_one_name(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"valle_serve"}
    for folder in hatch_build.FOLDERS:
        tracked = subprocess.run(
            ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True
        )
        wanted = {name for name in tracked.stdout.split() if "plots" not in Path(name).parts}
        assert {f"valle_serve/{name}" for name in wanted} <= held, "add new files to git"
    assert not [name for name in held if name.endswith((".pyc", ".png"))]


def test_wheel_tells_the_commit_that_it_is_made_of(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    assert held.read(f"valle_serve/app/{NOTE.name}").decode() == REVISION
    assert wheel.name.split("-")[1] == VERSION


def test_every_module_is_imported_and_a_users_packages_are_theirs(
    installed: Installed, tmp_path: Path
) -> None:
    modules = [
        file.relative_to(ROOT).with_suffix("").parts
        for folder in hatch_build.MOVED
        for file in sorted((ROOT / folder).rglob("*.py"))
    ]
    names = [".".join(("valle_serve", *parts)) for parts in modules if parts[-1] != "__main__"]
    program = f"""
from importlib import import_module
from valle_serve import Speaker, hf, ready, samplers
for name in {names}: import_module(name)
"""
    ran = installed.run("python", "-c", program + IS_THE_USERS, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_command_line_speaks_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    words = ("speak", "Hello.", "-o", "a.wav", "--max-duration-s", "0.3")
    said = installed.run("valle-serve", *words, folder=tmp_path, **QUICK)
    assert said.returncode == 0, said.stderr
    assert "voice heart" in said.stderr
    assert soundfile.info(tmp_path / "a.wav").frames > 0


def test_server_answers_a_client_and_ends(installed: Installed, toy: Path, tmp_path: Path) -> None:
    port = free_port()
    settings = {"TTS_PORT": str(port), "TTS_MODEL": str(toy), "TTS_VOICES": str(tmp_path / "v")}
    url = f"http://127.0.0.1:{port}"
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen(
            [str(installed.programs / "valle-serve"), "serve"],
            cwd=tmp_path,
            env=installed.variables | QUICK | settings,
            stderr=log,
        ) as server,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        try:
            ends_s = time.monotonic() + 250  # a first start compiles what samples
            while not _is_ready(url):
                assert server.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < ends_s, (tmp_path / "log").read_text()
                time.sleep(0.1)
            speech = client.audio.speech.create(
                model="tts-1",
                voice="alloy",
                input="Hello there.",
                response_format="wav",
                extra_body={"seed": 3, "max_duration_s": 0.5},
            )
            # Read by a process of its own, as the text was.
            voice = httpx.post(
                f"{url}/v1/audio/voices",
                data={"name": "anna", "consent": "true"},
                files={"file": ("a.wav", packed(speech_like(1.2)))},
                timeout=60,
            )
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, (tmp_path / "log").read_text()
    assert speech.content[:4] == b"RIFF"
    assert voice.status_code == 200, voice.text


def test_programs_of_the_library_run(installed: Installed, tmp_path: Path) -> None:
    program = "\nprint('ran')\n".join([*PROGRAMS, IS_THE_USERS])
    ran = installed.run("python", "-c", program, folder=tmp_path, HF_HOME=str(tmp_path), **QUICK)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("ran\n") == len(PROGRAMS)


def test_tests_pass_against_what_is_installed(
    installed: Installed, golden: Path, tmp_path: Path
) -> None:
    """The tests name modules as a wheel has them, renamed as it was."""
    for file in (ROOT / "tests").rglob("*"):
        copy = tmp_path / file.relative_to(ROOT)
        if file.is_file() and file.suffix != ".pyc":
            copy.parent.mkdir(parents=True, exist_ok=True)
            content = file.read_bytes()
            copy.write_bytes(hatch_build.moved(content, ROOT) if file.suffix == ".py" else content)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    quiet = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow")
    ran = installed.run("python", *quiet, *TESTS, folder=tmp_path, TTS_GOLDEN=str(golden))
    assert ran.returncode == 0, ran.stdout


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready").status_code == 200
    except httpx.ConnectError:
        return False
