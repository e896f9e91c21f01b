"""The version of the service: its release, and behind one the commit, as 0.1.0+g8c8b0cce4.

A checkout reads the commit from git's own files, so that it moves with every pull and takes no git,
which an image's build has not. A wheel and an image have it in a file that their build wrote.
"""

import re
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
"""The last release; its tag is v0.1.0."""

NOTE: Final = Path(__file__).with_name("revision.txt")
"""Where a build writes `REVISION`."""

_DIGITS = 9
_HASH = re.compile("[0-9a-f]{40,64}")


def read_revision(root: Path) -> str:
    """Return the commit of a checkout, as g8c8b0cce4; empty of a release, and of no checkout."""
    try:
        git = root / ".git"
        if git.is_file():  # a worktree, or a submodule
            git = root / git.read_text().removeprefix("gitdir:").strip()
        shared = git / "commondir"
        shared = git / shared.read_text().strip() if shared.is_file() else git
        head = (git / "HEAD").read_text().strip()
        if head.startswith("ref: "):
            name = head.removeprefix("ref: ")
            head = _commit(git, name) or _commit(shared, name)
        is_release = head == _commit(shared, f"refs/tags/v{RELEASE}")
    except (OSError, ValueError, zlib.error):
        return ""
    return f"g{head[:_DIGITS]}" if _HASH.fullmatch(head) and not is_release else ""


def _commit(git: Path, name: str) -> str:
    """Return the commit that a branch or tag means; empty if there is none."""
    if (git / name).is_file():
        digits = (git / name).read_text().strip()
        stored = git / "objects" / digits[:2] / digits[2:]
        if name.startswith("refs/tags/") and stored.is_file():
            _, _, content = zlib.decompress(stored.read_bytes()).partition(b"\0")
            if content.startswith(b"object "):  # a tag with a message
                return content.split()[1].decode()
        return digits
    packed = git / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    for line, behind in pairwise([*lines, ""]):
        digits, _, named = line.partition(" ")
        if named == name:
            return behind[1:] if behind.startswith("^") else digits
    return ""


REVISION: Final = (
    NOTE.read_text().strip() if NOTE.is_file() else read_revision(Path(__file__).parents[1])
)
"""The commit; empty of a release, or where it cannot be told."""

VERSION: Final = f"{RELEASE}+{REVISION}" if REVISION else RELEASE
