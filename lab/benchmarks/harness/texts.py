"""Texts for requests to a measured server."""

from itertools import cycle, islice
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
HARVARD = _ROOT.parent / "shared" / "data" / "harvard_dev.txt"
OWN = _ROOT / "app" / "commands" / "sentences.txt"


def sentences() -> list[str]:
    """Return the Harvard sentences if available, else those of `app.commands`."""
    lines = (HARVARD if HARVARD.is_file() else OWN).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def texts(count: int, *, sentences_each: int = 1) -> list[str]:
    """Return texts, distinct as long as the sentences last."""
    source = cycle(sentences())
    return [" ".join(islice(source, sentences_each)) for _ in range(count)]
