"""Checksums of a folder's weights, in a file beside them.

Without them, corruption that leaves valid numbers would go unnoticed. The format is that of
`sha256sum`; `sha256sum --check SHA256SUMS` reads it.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from models.checkpoints.files import CheckpointError, sha256_of

SUMS = "SHA256SUMS"

_LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<name>[^/\n]+)")


def write_sums(files: Sequence[Path]) -> None:
    """Add the hashes of files of one folder to its checksums; drop entries of deleted files."""
    folder = files[0].parent
    kept = {name: digest for name, digest in _read(folder).items() if (folder / name).exists()}
    sums = kept | {file.name: sha256_of([file]) for file in files}
    lines = [f"{digest}  {name}\n" for name, digest in sorted(sums.items())]
    partial = folder / f"{SUMS}.partial"
    partial.write_text("".join(lines))
    partial.rename(folder / SUMS)


def check_sums(files: Sequence[Path]) -> str:
    """Compare files of one folder with its checksums, if it has any.

    Returns:
        The SHA-256 of the contents of all files, in the order given: that of `sha256_of`.

    Raises:
        CheckpointError: A file differs or is not listed.
    """
    folder = files[0].parent
    stored = _read(folder) if (folder / SUMS).exists() else None
    together = sha256()
    for file in files:
        if stored is not None and file.name not in stored:
            raise CheckpointError(f"{file} is not in {SUMS}: it does not belong to the others")
        # The hash of the first file is that of all files so far: it is not computed twice.
        own = together if file is files[0] else sha256()
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                together.update(block)
                if own is not together and stored is not None:
                    own.update(block)
        if stored is not None and own.hexdigest() != stored[file.name]:
            raise CheckpointError(
                f"{file} is damaged, or not the file that was saved: its hash is not that of {SUMS}"
            )
    return together.hexdigest()


def _read(folder: Path) -> Mapping[str, str]:
    """Return the listed hash of each file name; empty if there is no list."""
    path = folder / SUMS
    if not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    matches = [_LINE.fullmatch(line) for line in lines]
    if None in matches:
        raise CheckpointError(f"{path}: line {matches.index(None) + 1} is no hash and name")
    return {match["name"]: match["digest"] for match in matches if match is not None}
