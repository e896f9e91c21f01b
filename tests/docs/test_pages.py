"""What the pages name exists: links, folders, packages, commands, phonemes."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import blocks

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("weights/*.md")])
READER_PAGES = ["README.md", "CONTRIBUTING.md"]
SCRIPTS = re.compile(r"^(?:nice .* )?((?:scripts|\.ci)/[\w.]+)", re.MULTILINE)


def _tree() -> list[str]:
    return next(block for block in blocks("README.md") if "samplers/" in block).splitlines()


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if anchor and file.suffix == ".md" and page.name != "CHANGELOG.md":
            assert anchor in _anchors(file), target


def test_nothing_is_to_be_installed_under_a_name_that_nobody_has_registered() -> None:
    """Whoever registers it is installed: the service is on no package index."""
    asked = subprocess.run(
        ["git", "grep", "-nE", r"((pip3?|pipx|uv|tool) install|uvx) (-\S+ )*[\"']?valle[-_]serve"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert asked.stdout == ""


def test_phonemes_that_pages_write_are_known_to_the_builtin_voice() -> None:
    symbols = {*json.loads((ROOT / "weights" / "lm.json").read_text("utf-8"))["phonemes"], " "}
    text = "".join(page.read_text("utf-8") for page in PAGES)
    written = set(re.findall(r"\[\[([^\[\]\d]+)\]\]", text))
    assert written
    assert {word for word in written if not symbols.issuperset(word)} == set()


def test_every_page_of_docs_is_linked_from_their_list() -> None:
    docs = ROOT / "docs"
    listed = (docs / "README.md").read_text("utf-8")
    linked = {(docs / target).resolve() for target in re.findall(r"\]\(([\w./-]+\.md)\)", listed)}
    assert {path for path in docs.glob("**/*.md") if path != docs / "README.md"} <= linked


def test_tree_of_readme_exists() -> None:
    folder = ""
    for line in _tree():
        name, comment = line.split(maxsplit=1)
        if not line.startswith(" "):
            folder = name
        path = ROOT / (name if name == folder else folder + name)
        assert path.is_dir() if name.endswith("/") else path.is_file(), path
        assert comment


def test_tree_of_readme_is_whole() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {line.split()[0].rstrip("/") for line in _tree()}


@pytest.mark.parametrize("page", READER_PAGES)
def test_scripts_named_exist_and_run(page: str) -> None:
    named = {script for block in blocks(page, "sh") for script in SCRIPTS.findall(block)}
    assert named
    for script in named:
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_files_named_in_recipes_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`((?:app|gpu|models|samplers|tests|docs)/[\w./]+?)`", page)
    assert named
    for name in named:
        assert (ROOT / name).exists(), name
