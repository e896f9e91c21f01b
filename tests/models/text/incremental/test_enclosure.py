"""Quotations and brackets, and the apostrophes that only look like them."""

# ruff: noqa: RUF001 - quotes of several kinds

import pytest

from models.text.incremental.enclosure import PATIENCE_CHARS, Enclosure, Undecided

# The place is where the bar stands.
INSIDE = [
    '"a. |b" c',
    "“a. |b” c",
    "(a. |b) c",
    "[a. |b] c",
    "'a. |b.' c",
    "‘a. |b.’ c",
    "'a. |don't.' c",
    '"(a. |b) c',
    '"\'a. |b." c',
    "('tis. |b) c",
    "(don't. |b) c",
]
OUTSIDE = [
    "a. |b",
    '"a" b. |c',
    "'a' b. |c",
    "'tis a. |b",
    "rock 'n' roll. |b",
    "the '90s. |b",
    "the dogs' bones. |b c's d",
    "'a. |b 'c.' d",
    "'a. |b \"c. d",
    "(a\n\nb. |c",
]
OPEN = ['"a. |b', "(a. |b", "'a. |b", "'a. |b'", "'a. |b.'"]


def asked(text: str) -> bool:
    return Enclosure().around(text.replace("|", ""), text.index("|"))


@pytest.mark.parametrize("text", INSIDE)
def test_a_place_before_the_end_is_inside(text) -> None:
    assert asked(text)


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_mere_sign_encloses_nothing(text) -> None:
    assert not asked(text)


@pytest.mark.parametrize("text", OPEN)
def test_what_is_open_still_is_not_decided(text) -> None:
    with pytest.raises(Undecided):
        asked(text)


@pytest.mark.parametrize("text", OPEN[:3])
def test_what_stays_open_for_long_encloses_nothing(text) -> None:
    assert not asked(text + "b" * PATIENCE_CHARS)
    assert not asked(text + "\n\nb")
