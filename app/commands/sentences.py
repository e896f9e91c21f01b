"""The sentences that benchmarks and calibration speak where none are given."""

from pathlib import Path

SENTENCES = Path(__file__).with_name("sentences.txt")
"""Plain sentences, one a line, that are in no corpus and no test set."""


def read_sentences(path: Path) -> list[str]:
    """Return the sentences of a file with one a line; raises ValueError if it has none."""
    sentences = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    if not sentences:
        raise ValueError("the file has no sentences")
    return sentences
