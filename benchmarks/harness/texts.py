"""What the measurements of a server say."""

from itertools import cycle, islice
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
HARVARD = _ROOT.parent / "shared" / "data" / "harvard_dev.txt"
OWN = _ROOT / "app" / "calibration_sentences.txt"


def sentences() -> list[str]:
    """Return Harvard sentences where they are at hand, else those that come with the project."""
    lines = (HARVARD if HARVARD.is_file() else OWN).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def texts(count: int, *, sentences_each: int = 1) -> list[str]:
    """Return texts, all different as long as there are sentences left.

    Args:
        count: How many.
        sentences_each: How many sentences one has.
    """
    said = cycle(sentences())
    return [" ".join(islice(said, sentences_each)) for _ in range(count)]
