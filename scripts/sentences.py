"""Count the long sentences of README.md and docs/; list those of more words than a limit.

Usage: python -m scripts.sentences [--over 25] [FILE ...]

Code blocks, tables and headings are left out. A span of code, a link and a number are one word.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONG = 25  # words; fewer than 5 % of the sentences may have more
LONGEST = 35  # words; no sentence may have more

_BLOCKS_WITHOUT_PROSE = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^([ >]*)(```|~~~).*?^[ >]*\2[^\n]*$", re.DOTALL | re.MULTILINE),
)
_LINE_WITHOUT_PROSE = re.compile(r"\s*(\||#|\$\$|<[a-z/]|[-=*]{3,}\s*$)")
_BLOCK_START = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+|\s*>\s?")
_CODE = re.compile(r"(`+)(?:(?!`).)+?\1", re.DOTALL)
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
_ADDRESS = re.compile(r"https?://\S*[\w/]")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|Dr|Mr|Mrs|St|No|p\.m|a\.m)\.")
_END = re.compile(r"(?<=[.!?])(?<!\.\.)[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Za-z0-9\ue000])")
_WORD = re.compile(r"[^\W_]|`\.\.\.`")


class Sentence(NamedTuple):
    """A sentence of a page; `line` is the first line of its block, from 1."""

    path: Path
    line: int
    text: str

    @property
    def words(self) -> int:
        """The words that a reader counts."""
        return sum(bool(_WORD.search(word)) for word in self.text.split())


def pages() -> list[Path]:
    """Return README.md and every page of docs/ that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "README.md", "docs/**.md", "docs/*.md"],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
    )
    return sorted({ROOT / name for name in listed.stdout.split("\0") if name})


def sentences(path: Path, text: str) -> Iterator[Sentence]:
    """Yield the sentences of a page in Markdown."""
    for number, block in _blocks(text):
        plain = _CODE.sub("\ue000", block)
        plain = _LINK.sub(r"\1", plain)
        plain = _ADDRESS.sub("\ue000", plain)
        plain = _ABBREVIATION.sub(r"\1", plain)
        for sentence in _END.split(plain):
            if sentence.strip():
                yield Sentence(path, number, sentence.strip().replace("\ue000", "`...`"))


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items, each with the number of its first line."""
    for without in _BLOCKS_WITHOUT_PROSE:
        text = without.sub(lambda match: "\n" * match.group().count("\n"), text)
    first = 0
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        skipped = not line.strip() or _LINE_WITHOUT_PROSE.match(line)
        start = _BLOCK_START.match(line)
        if lines and (skipped or start):
            yield first, " ".join(lines)
            lines = []
        if not skipped:
            first = first if lines else number
            lines.append(line[start.end() if start else 0 :].strip())


def main() -> int:
    """Print the long sentences and their share; return 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="pages; by default README and docs/")
    parser.add_argument("--over", type=int, default=LONG, help="list sentences of more words")
    asked = parser.parse_args()
    files = [path.resolve() for path in asked.files] or pages()
    found = [one for path in files for one in sentences(path, path.read_text(encoding="utf-8"))]
    for one in found:
        if one.words > asked.over:
            print(f"{one.path.relative_to(ROOT)}:{one.line}: {one.words} words: {one.text}")
    long = sum(one.words > LONG for one in found)
    longest = sum(one.words > LONGEST for one in found)
    share = long / max(len(found), 1)
    print(
        f"{len(found)} sentences: {long} over {LONG} words ({share:.1%}), {longest} over {LONGEST}"
    )
    return int(share >= 0.05 or longest > 0)


if __name__ == "__main__":
    sys.exit(main())
