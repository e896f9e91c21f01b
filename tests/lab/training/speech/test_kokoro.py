# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest

from lab.training.speech.kokoro import phonemize
from lab.training.speech.styles import Accent


@pytest.mark.parametrize(
    ("text", "accent", "expected"),
    [
        ("Go now.", "en-us", "ɡˌO nˈW."),
        ("Go now.", "en-gb", "ɡˌQ nˈW."),
        ("My boy may judge.", "en-us", "mI bˈY mˈA ʤˈʌʤ."),
        ("Church, bird!", "en-us", "ʧˈɜɹʧ, bˈɜɹd!"),
        ("Church, bird!", "en-gb", "ʧˈɜːʧ, bˈɜːd!"),
        ("The water?", "en-us", "ðə wˈɔTəɹ?"),
        ("The water?", "en-gb", "ðə wˈɔːtə?"),
        ("There, near.", "en-gb", "ðˈɛː, nˈɪə."),
        ("A button.", "en-us", "ə bˈʌtᵊn."),
    ],
)
def test_words_are_spelled_as_kokoro_learnt_them(text: str, accent: Accent, expected: str) -> None:
    assert phonemize(text, accent) == expected
