"""A text read at once, where a test needs no pieces."""

from collections.abc import Iterable
from typing import Any

from models.config import ModelConfig
from models.text import ENGLISH_SYMBOLS, FrontEnd, Prepared, Utterance


def prepare(text: str, front_end: FrontEnd | None = None, **how: Any) -> list[Utterance]:
    """Return the utterances of a text, by default as the built-in voice reads it."""
    return prepared(text, front_end, **how).utterances


def prepared(text: str, front_end: FrontEnd | None = None, **how: Any) -> Prepared:
    """Return what a text is read as, with what is left out of it."""
    how = {"language": "en", "max_chars": 4096, **how}
    *_, read = (front_end or reading()).prepared(text, **how)
    assert read is not None
    return read


def reading(
    symbols: Iterable[str] = ENGLISH_SYMBOLS, max_phonemes: int = 250, *, public: bool = False
) -> FrontEnd:
    """Return the front end of a model with these symbols, the built-in or a public one."""
    ids = {symbol: number for number, symbol in enumerate(symbols, start=4)}
    config = ModelConfig(
        width=2, layers=1, heads=1, kv_heads=1, ffn=1, phonemes=tuple(ids),
        phoneme_vocabulary=ids if public else {}, max_phonemes=max_phonemes,
    )  # fmt: skip
    return FrontEnd(config)
