"""What `pip wheel` makes speaks from an empty folder, and puts one name into site-packages."""

import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import soundfile

import hatch_build
from app.version import NOTE, REVISION, VERSION
from tests.conftest import ROOT
from tests.docs.test_library_page import PROGRAMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made by the build tools that are installed here."""
    pytest.importorskip("hatchling", reason="scripts/lock has it; a wheel is built with it")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=250)
    (made,) = folder.glob("*.whl")
    return made


def test_it_holds_every_file_of_the_service_under_one_name(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"valle_serve"}
    for folder in hatch_build.FOLDERS:
        tracked = subprocess.run(
            ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True
        )
        wanted = {name for name in tracked.stdout.split() if "plots" not in Path(name).parts}
        assert {f"valle_serve/lib/{name}" for name in wanted} <= held, "add new files to git"
    assert not [name for name in held if name.endswith((".pyc", ".png"))]


def test_it_tells_the_commit_that_it_is_made_of(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    assert held.read(f"valle_serve/lib/app/{NOTE.name}").decode() == REVISION
    assert wheel.name.split("-")[1] == VERSION


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and the dependencies of this one."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    (packages,) = place.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, timeout=250)
    return place


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    """The variables of this process, with nothing of the checkout on the path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_it_speaks_outside_of_the_repository(
    place: Path, here: dict[str, str], tmp_path: Path
) -> None:
    python = place / "bin" / "python"
    program = str(place / "bin" / "valle-serve")
    look = "import importlib.util as u; print([n for n in ('app', 'models') if u.find_spec(n)])"
    empty = tmp_path / "empty"
    empty.mkdir()
    seen = subprocess.run(
        [str(python), "-c", look], cwd=empty, env=here, capture_output=True, text=True
    )
    assert seen.stdout.strip() == "[]"
    command = [program, "speak", "Hello.", "-o", "a.wav"]
    said = subprocess.run(
        [*command, "--max-duration-s", "0.3"],
        cwd=empty,
        env=here | {"TTS_DEVICE": "cpu", "TTS_WEIGHTS": "float32"},  # compile nothing
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert said.returncode == 0, said.stderr
    assert "voice heart" in said.stderr
    assert soundfile.info(empty / "a.wav").frames > 0


@pytest.mark.parametrize("program", PROGRAMS, ids=["speaker", "samplers", "transformers"])
def test_it_is_a_library(place: Path, here: dict[str, str], program: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [str(place / "bin" / "python"), "-c", program],
        cwd=tmp_path,
        env=here | {"HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr
    assert "[" in ran.stdout
