# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest

from training.speech.kokoro import phonemize, to_kokoro
from training.speech.styles import Accent

# misaki's inventories of the two accents (its EN_PHONES.md): what Kokoro was trained on.
STRESS_AND_MARKS = "ˈˌ ,.?!"
SHARED = "bdfhijklmnpstuvwzðŋɔəɛɡɪɹʃʊʌʒʤʧθᵊɑɜAIWYTᵻ"
LETTERS: dict[Accent, set[str]] = {
    "en-us": set(STRESS_AND_MARKS + SHARED + "æO"),
    "en-gb": set(STRESS_AND_MARKS + SHARED + "aQɒː"),
}


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


@pytest.mark.parametrize(
    ("ipa", "american", "british"),
    [
        ("ɪ^ə", "iə", "ɪə"),
        ("i^ə", "iə", "ɪə"),
        ("ɡˌo^ʊɪŋ", "ɡˌOɪŋ", "ɡˌɔʊɪŋ"),
        ("bˈɑːɾə^l", "bˈɑTᵊl", "bˈɑːTᵊl"),
        ("lˈɑːx", "lˈɑk", "lˈɑːk"),
        ("bˈɛɾɚɹ ˈæktɚ", "bˈɛTəɹ ˈæktəɹ", "bˈɛTəɹ ˈæktəɹ"),
        ("ɡaʁsˈɔ̃", "ɡaʁsˈɔ", "ɡaʁsˈɔ"),
    ],
)
def test_tied_sounds_become_one_letter_or_come_apart(ipa: str, american: str, british: str) -> None:
    assert to_kokoro(ipa, "en-us") == american
    assert to_kokoro(ipa, "en-gb") == british


@pytest.mark.parametrize("accent", ["en-us", "en-gb"])
def test_ordinary_sentences_use_no_letter_kokoro_has_not_seen(accent: Accent) -> None:
    for text in (
        "Mother bundled up the children for the long way to school.",
        "The new administration's large tax cut was highly controversial!",
        "Is a certain little kitten, perhaps, on the mountain?",
        "Her opinion of Europe's lower courts is pure theory.",
        "Dr. Smith's usual choice of joy and leisure was a fire and the radio.",
    ):
        phonemes = phonemize(text, accent)
        assert set(phonemes) <= LETTERS[accent], phonemes


def test_marks_stay_where_they_were_and_abbreviations_are_read_out() -> None:
    assert phonemize("Well, Mr. Hill, no.", "en-us").count(",") == 2
    assert phonemize("Mr. Hill.", "en-us") == phonemize("Mister Hill.", "en-us")
