"""Whatever words a text has: espeak-ng, which is native code, survives them.

Words are drawn in a process of their own, from a seed. `FUZZ_WORDS` says how many; CI takes 3,000,
the same every time.
"""

import random
from collections.abc import Iterator
from itertools import islice
from multiprocessing import get_context

import pytest

from models.text.espeak import pronounce
from tests.fuzz.settings import cases_of, seed_of
from tests.models.text.test_espeak import survived

CI_CASES = 3000
CASES = cases_of("FUZZ_WORDS", CI_CASES)
SEED = seed_of(CASES, CI_CASES)
BATCH = 50
SHORTEST, LONGEST = 30, 4096
VOICES = [("en-us", False), ("en-us", True), ("fr-fr", True), ("de", True), ("ko", True)]
"""Voice, and whether punctuation reaches espeak-ng: the built-in voice first."""
ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "'`´‘’ʼ",  # noqa: RUF001
    "0123456789²³½",
    '.,-_/&$%@#*+=~^"()[]{}<>|\\:;!?£€°…—·¿«»',
    "éüßñæøαωжя中한あةท\u0300\u0301\u200d\u00ad",
)


def drawn(seed: int, count: int) -> Iterator[str]:
    """Yield words: a few characters repeated, or all at random; short ones are more frequent."""
    chance = random.Random(seed)
    for _ in range(count):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** (chance.random() ** 2))
        unit = chance.choice((1, 2, 2, 3, 4, length))
        part = "".join(chance.choice(chance.choice(ALPHABETS)) for _ in range(unit))
        yield (part * (length // unit + 1))[:length]


def pronounce_drawn(seed: int, count: int, done: object) -> None:
    """Pronounce drawn words, a batch in each voice by turns; count those that are done."""
    words, number = drawn(seed, count), 0
    while batch := list(islice(words, BATCH)):
        voice, verbatim = VOICES[number % len(VOICES)]
        pronounce(batch, voice, verbatim=verbatim)
        done.value += len(batch)  # type: ignore[attr-defined]
        number += 1


@pytest.mark.slow
@pytest.mark.timeout(max(300, CASES // 50))
def test_no_drawn_word_ends_the_process() -> None:
    spawn = get_context("spawn")
    done = spawn.Value("q", 0)
    process = spawn.Process(target=pronounce_drawn, args=(SEED, CASES, done))
    process.start()
    process.join()
    if process.exitcode:
        voice, verbatim = VOICES[done.value // BATCH % len(VOICES)]
        for word in [*drawn(SEED, CASES)][done.value :][:BATCH]:
            assert survived([word], voice, verbatim=verbatim), (voice, verbatim, word)
    assert process.exitcode == 0, f"seed {SEED}, after {done.value} words"
    assert done.value == CASES
