"""What clients send as a language, and what it means to a model."""

# ruff: noqa: RUF001 - brackets of another script

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.published.languages import LANGUAGES
from models.text.published.tags import KNOWN, find_language, language_pattern

ALL = tuple(LANGUAGES)


def test_the_known_languages_are_those_that_models_speak() -> None:
    assert KNOWN == ALL


@pytest.mark.parametrize(
    "asked",
    [
        *(
            "en",
            "EN",
            " En ",
            "en-US",
            "en_US",
            "EN_us",
            "en-Latn-US",
            "en-GB-oxendict",
            "en-x-tts",
        ),
        *("eng", "ENG", "eng-us", "en_US.UTF-8", "en_US.utf8", "en_GB@euro", "en us", "en/US"),
        *("English", "english", "ENGLISH", "English (US)", "English, US", "english-us"),
        *("American English", "british_english", "U.S. English", "English (United States)"),
        *("auto", "Auto", "AUTO", " auto ", "auto-detect", "Auto Detect", "und", "", None),
    ],
)
@pytest.mark.parametrize("spoken", [("en",), ALL])
def test_a_tag_or_name_of_english_means_it_to_every_model_that_speaks_it(asked, spoken) -> None:
    assert find_language(asked, "en", spoken) == "en"


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        *(("de-AT", "de"), ("German", "de"), ("ger", "de"), ("deu", "de"), ("Deutsch", "de")),
        *(("fr_CA", "fr"), ("Canadian French", "fr"), ("français", "fr"), ("fra", "fr")),
        *(("ja-JP", "ja"), ("Japanese", "ja"), ("日本語", "ja"), ("jpn", "ja")),
        *(
            ("zh-Hans-CN", "zh"),
            ("cmn-Hans", "zh"),
            ("Mandarin Chinese", "zh"),
            ("中文（简体）", "zh"),
        ),
        *(("Chinese (Simplified)", "zh"), ("ko-KR", "ko"), ("Korean", "ko"), ("한국어", "ko")),
    ],
)
def test_other_languages_are_found_where_they_are_spoken_and_nowhere_else(asked, meant) -> None:
    assert find_language(asked, "en", ALL) == meant
    assert find_language(asked, "en", ("en",)) is None


@pytest.mark.parametrize(
    "asked",
    [
        *("nl", "pt-BR", "tlh", "yue", "Klingon", "Hinglish", "xx", "e", "123", "-", "_"),
        *("C", "C.UTF-8", "POSIX", "Old English", "Low German", "American Sign Language"),
        *("English-based creole", "endless", "germanic", "*", "🙂", "no auto"),
    ],
)
def test_what_no_model_speaks_means_none(asked) -> None:
    assert find_language(asked, "en", ALL) is None


@pytest.mark.parametrize("asked", ["auto", None, ""])
def test_auto_means_the_language_of_the_voice_however_its_card_writes_it(asked) -> None:
    assert find_language(asked, "de-DE", ALL) == "de"
    assert find_language(asked, "Japanese", ALL) == "ja"
    assert find_language(asked, "nl", ALL) is None


def test_the_longest_tag_that_is_spoken_is_meant() -> None:
    assert find_language("pt-BR", "en", ("pt", "pt-br")) == "pt-br"
    assert find_language("pt_PT", "en", ("pt", "pt-br")) == "pt"


WORDS = ["en", "ENG", "English", "american", "auto", "detect", "und", "US", "old", "中文", "日本語"]
SIGNS = [" ", "-", "_", "*", "(", ")", "[", "@", ".", "/", "\n", "x", "（"]


@given(st.lists(st.sampled_from(WORDS + SIGNS), max_size=6).map("".join) | st.text(max_size=6))
def test_whatever_means_a_language_matches_the_pattern_of_the_document(asked: str) -> None:
    for spoken in (("en",), ALL):
        if find_language(asked, "en", spoken) is not None:
            assert re.search(language_pattern(spoken), asked)


@pytest.mark.parametrize("asked", ["nl", "enx", "Hinglish", "Klingon", "123", "x en", "germanic"])
def test_the_pattern_has_nothing_else(asked: str) -> None:
    assert not re.search(language_pattern(("en",)), asked)
