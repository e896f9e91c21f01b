# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones
"""The phonemes of plain sentences and the inventory, both pinned: trained weights rest on them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.text import ENGLISH_SYMBOLS, TextError, phonemize
from models.text.reader import builtin_reader

PLAIN = [
    ("Hello, world!", "həlˈoʊ, wˈɜːld!"),
    ("It's a test; isn't it?", "ɪts ɐ tˈɛst; ˈɪzənt ɪt?"),
    ("She said “no” — and left…", 'ʃiː sˈɛd "nˈoʊ" — ænd lˈɛft…'),
    ("He -- or she - spoke...", "hiː — ɔːɹ ʃiː — spˈoʊk…"),
    ('a "friend" (a (small) one)', 'ɐ "fɹˈɛnd" (ɐ (smˈɔːl) wˌʌn)'),
    ('"A" is a letter', '"ˈeɪ" ɪz ɐ lˈɛɾɚ'),
    ("a well-known garçon", "ɐ wˈɛlnˈoʊn ɡˈɑːɹsɑːn"),
    ("don’t\n 'stop'", "dˈoʊnt stˈɑːp"),
    ("'Go.' she said", "ɡˈoʊ. ʃiː sˈɛd"),
    ("...", "…"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "phonemes"), PLAIN)
def test_plain_sentences_keep_their_phonemes(text: str, phonemes: str) -> None:
    assert phonemize(text) == phonemes


def test_threads_hear_the_same() -> None:
    texts = [text for text, _ in PLAIN] * 20
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(phonemize, texts)) == [phonemize(text) for text in texts]


def test_inventory_never_changes() -> None:
    digest = hashlib.sha256("".join(ENGLISH_SYMBOLS).encode()).hexdigest()
    assert (len(ENGLISH_SYMBOLS), digest[:16]) == (78, "6ec1108506aa314f")


def test_unsupported_language_is_refused_with_the_choice() -> None:
    with pytest.raises(TextError, match=r"'xx' is not supported; choose from \['en'\]"):
        builtin_reader("xx")
