"""The lock holds a version of all that is asked for, and the scripts are what they should be."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.deploy.container_files import text

PROJECT = tomllib.loads(text("pyproject.toml"))
NAME = re.compile(r"[A-Za-z0-9._-]+")


def _canonical(requirement: str) -> str:
    name = NAME.match(requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _locked() -> dict[str, str]:
    lines = [line for line in text("requirements.lock").splitlines() if not line.startswith("#")]
    return {_canonical(line): line.partition("==")[2] for line in lines}


def test_everything_asked_for_is_locked() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += ["encodec", "vocos"]  # with --no-deps
    asked += [requirement for requirements in (*extras, *groups) for requirement in requirements]
    missing = {_canonical(requirement) for requirement in asked} - _locked().keys()
    assert not missing, "run scripts/lock"


def test_lock_is_exact_and_names_no_build_of_one_machine() -> None:
    for name, version in _locked().items():
        assert re.fullmatch(r"\d+(\.\w+)*", version), name


def _hashed() -> dict[str, str]:
    """Return the versions of what is installed by hashes."""
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", text("requirements.service.txt"), re.MULTILINE)
    return {_canonical(name): version for name, version in pins}


def test_what_the_service_takes_has_hashes_and_the_versions_of_the_lock() -> None:
    locked, hashed = _locked(), _hashed()
    asked = {_canonical(one) for one in PROJECT["project"]["dependencies"]} - {"torch"}
    assert asked <= hashed.keys(), "run scripts/lock"
    of_other_systems = {"colorama", "httpx2-jsfetch"}
    for name, version in hashed.items():
        assert locked.get(name, version) == version, name
        assert name in locked or name in of_other_systems
    blocks = re.split(r"^(?=[a-z])", text("requirements.service.txt"), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(hashed)
    assert all("--hash=sha256:" in block for block in blocks)


def test_torch_and_its_cuda_packages_are_locked_and_left_to_its_build() -> None:
    cuda = {name for name in _locked() if name.startswith(("cuda-", "nvidia-"))}
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "cuda-toolkit"} <= cuda
    assert not {"torch", "triton", "scipy", *cuda} & _hashed().keys()


SCRIPTS = [one for one in (*ROOT.glob("scripts/*"), ROOT / ".ci/run") if one.suffix == ""]


@pytest.mark.parametrize("path", [one for one in SCRIPTS if one.is_file()], ids=lambda p: p.name)
def test_scripts_stop_at_the_first_failure_and_are_read_by_the_bash_of_macos(path: Path) -> None:
    """3.2 has none of these words, and takes an empty array for a variable that is not set."""
    script = path.read_text(encoding="utf-8")
    head, *lines = script.splitlines()
    assert head == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert path.stat().st_mode & 0o111
    later = r"\b(mapfile|readarray|declare -[An]|wait -n|coproc)\b|&>>|\|&|\$\{\w+[,^@]"
    assert not re.search(later, script)
    assert "=()" not in script


def test_every_python_that_the_project_takes_is_looked_for() -> None:
    least, beyond = map(int, re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"]))
    install = text("scripts/install")
    assert {f"python3.{minor}" for minor in range(least, beyond)} <= {*install.split()}
    assert f"not (3, {least}) <= sys.version_info < (3, {beyond})" in install


PYTHON = """
case "$*" in "-c "*from*) exit 1 ;; "-c "*) exit 0 ;; esac  # torch is not installed yet
echo "$@" >>pip
case "$*" in *index-url*) exit "${FAILS:-0}" ;; esac
"""
INDEX = "https://example.org/whl/cpu"


def _installed(
    folder: Path, *, system: str, driver: bool, **variables: str
) -> tuple[list[str], str]:
    """Run the step `torch` on a machine that is made up; return pip's commands and what is told."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "install", folder / "scripts")
    (folder / "requirements.lock").write_text("torch==2.13.0\n")
    programs = {"uname": f"echo {system}", ".venv/bin/python": PYTHON}
    if driver:
        programs["nvidia-smi"] = "true"
    for name, line in programs.items():
        program = folder / (name if "/" in name else f"bin/{name}")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    ran = subprocess.run(
        [folder / "scripts" / "install", "torch"],
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    commands = (folder / "pip").read_text().splitlines()
    return [one for one in commands if one.endswith(" torch")], ran.stderr


_CPUS, _CUDA, _SAID = "for CPUs is fetched", "with CUDA is fetched", "TORCH_INDEX_URL="


@pytest.mark.parametrize(
    ("system", "driver", "variables", "index", "told"),
    [
        ("Linux x86_64", False, {}, "/whl/cpu", _CPUS),
        ("Linux x86_64", False, {"TORCH_INDEX_URL": "cpu"}, "/whl/cpu", _CPUS),
        ("Linux x86_64", True, {"TORCH_INDEX_URL": "cpu"}, "/whl/cpu", _CPUS),
        ("Linux x86_64", True, {"TORCH_INDEX_URL": "cu126"}, "/whl/cu126", "6 GB"),
        ("Linux x86_64", False, {"TORCH_INDEX_URL": INDEX}, INDEX, _CPUS),
        ("Linux x86_64", True, {}, "", _CUDA),
        ("Linux x86_64", False, {"TORCH_INDEX_URL": ""}, "", _CUDA),
        ("Linux aarch64", False, {}, "", ""),
        ("Darwin arm64", False, {}, "", ""),
        ("Darwin arm64", False, {"TORCH_INDEX_URL": "cpu"}, "/whl/cpu", _CPUS),
    ],
)
def test_the_build_of_torch_is_the_machines_or_the_one_asked_for(
    system: str, driver: bool, variables: dict[str, str], index: str, told: str, tmp_path: Path
) -> None:
    if not variables and not driver and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("a driver is here")
    commands, said = _installed(tmp_path, system=system, driver=driver, **variables)
    if index:
        first, *_ = commands
        assert f"{index} " in first
        assert "--no-deps --index-url" in first
    else:
        assert not any("index-url" in one for one in commands)
    lines = [line for line in said.splitlines() if line != "scripts/install: torch"]
    assert len(lines) == bool(told)
    assert told in said
    assert (" GB" in said) == bool(told)
    if told:
        assert _SAID in said


def test_an_index_that_is_away_gives_nobody_the_usual_build(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        _installed(tmp_path, system="Linux x86_64", driver=True, TORCH_INDEX_URL="cpu", FAILS="1")
    assert "takes the usual build" in failed.value.stderr
    assert len((tmp_path / "pip").read_text().splitlines()) == 2  # pip itself, and the attempt
