"""The version is the release and the commit behind it, by whatever git has the commit in."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.version import RELEASE, VERSION, read_revision
from tests.conftest import ROOT


def git(folder: Path, *words: str) -> str:
    """Run git as somebody, and return what it prints."""
    who = ["-c", "user.name=A", "-c", "user.email=a@b.example"]
    ran = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of two commits on the branch work/a."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "work/a")
    for number in "12":
        (folder / "file").write_text(number)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", number)
    return folder


def packed(folder: Path) -> Path:
    """Have git keep branches and tags in one file."""
    git(folder, "pack-refs", "--all")
    return folder


def detached(folder: Path) -> Path:
    """Leave the branch."""
    git(folder, "checkout", "--quiet", "--detach")
    return folder


def worktree(folder: Path) -> Path:
    """Add a second tree of the same repository, on a branch of its own."""
    git(folder, "worktree", "add", "--quiet", "-b", "work/b", "../second")
    return folder.parent / "second"


def shallow(folder: Path) -> Path:
    """Clone the last commit alone, without tags."""
    git(folder.parent, "clone", "--quiet", "--depth", "1", "--no-tags", folder.as_uri(), "third")
    return folder.parent / "third"


def whole(folder: Path) -> Path:
    """Leave it as it is."""
    return folder


@pytest.mark.parametrize("form", [whole, packed, detached, worktree, shallow])
def test_the_revision_is_the_commit(checkout: Path, form: Callable[[Path], Path]) -> None:
    assert read_revision(form(checkout)) == "g" + git(checkout, "rev-parse", "HEAD")[:9]


@pytest.mark.parametrize("form", [whole, packed, detached, worktree])
@pytest.mark.parametrize("words", [[], ["--annotate", "--message", "a release"]])
def test_a_tagged_release_has_no_revision(
    checkout: Path, words: list[str], form: Callable[[Path], Path]
) -> None:
    git(checkout, "tag", *words, f"v{RELEASE}")
    assert not read_revision(form(checkout))


def test_the_commit_behind_a_release_has_a_revision(checkout: Path) -> None:
    git(checkout, "tag", f"v{RELEASE}", "HEAD~1")
    git(checkout, "tag", "v9.9.9")
    assert read_revision(checkout)


@pytest.mark.parametrize("head", [None, "", "ref: refs/heads/none\n", "\0"])
def test_what_is_no_checkout_has_none(tmp_path: Path, head: str | None) -> None:
    if head is not None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "HEAD").write_text(head)
    assert not read_revision(tmp_path)


def test_a_tree_that_is_not_installed_has_a_version_too(tmp_path: Path) -> None:
    (tmp_path / "app").symlink_to(ROOT / "app")
    program = f"import sys; sys.path = [{str(tmp_path)!r}, *sys.path[1:]]; import app.version as v"
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"{program}; print(v.VERSION)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == f"{RELEASE}\n"


def test_here_it_is_the_release_and_what_git_says() -> None:
    head = git(ROOT, "rev-parse", "HEAD") if (ROOT / ".git").exists() else ""
    assert f"{RELEASE}+g{head[:9]}" == VERSION or not head or VERSION == RELEASE
