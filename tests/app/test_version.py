"""The version is that of the package, and there is one where nothing is installed."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from app.version import VERSION
from tests.conftest import ROOT


def test_it_is_the_version_of_the_package() -> None:
    assert version("valle-serve") == VERSION


def test_a_tree_that_is_not_installed_has_one_too(tmp_path: Path) -> None:
    (tmp_path / "app").symlink_to(ROOT / "app")
    program = f"import sys; sys.path = [{str(tmp_path)!r}, *sys.path[1:]]; import app.version as v"
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"{program}; print(v.VERSION)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "0+source\n"
