"""What no voice reads is left out of a text and told, and the rest is read as without it."""

# ruff: noqa: RUF001 - letters of many scripts

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import TextError
from models.text.warnings import warnings_of
from tests.models.text.reading import prepared

SHRUG = r"¯\_(ツ)_/¯"
CASES = [
    ("The Japanese word 猫 means cat.", "The Japanese word means cat.", ["猫"]),
    ("The word for cat is 猫.", "The word for cat is.", ["猫"]),
    (f"Sure thing {SHRUG}", "Sure thing", ["ツ"]),
    (f"{SHRUG} Sure thing.", "Sure thing.", ["ツ"]),
    ("ಠ_ಠ hmm", "hmm", ["ಠ"]),
    ("Tokyo (東京) is big.", "Tokyo is big.", ["東京"]),
    ("Tokyo(東京) is big.", "Tokyo is big.", ["東京"]),
    ("say “猫” twice", "say twice", ["猫"]),
    ("(the word 猫).", "(the word).", ["猫"]),
    ("He said 猫, and left.", "He said, and left.", ["猫"]),
    ("cat, 猫, dog", "cat, dog", ["猫"]),
    ("The cat — 猫 — sat.", "The cat — sat.", ["猫"]),
    ("iPhone手机 is here.", "iPhone is here.", ["手机"]),
    ("Москва-based team", "based team", ["Москва"]),
    ("a 猫's tail", "a tail", ["猫"]),
    ("Привет, как дела? Hello there.", "Hello there.", ["Привет", "как", "дела"]),
    ("한국어, العربية and हिन्दी here.", "and here.", ["한국어", "العربية", "हिन्दी"]),
    ("שלום means peace", "means peace", ["שלום"]),
    ("λόγος is α and ω", "is alpha and omega", ["λόγος"]),
    ("Hello 😊! Nice 👨‍👩‍👧 day 🇺🇸.", "Hello! Nice day.", ["😊", "👨‍👩‍👧", "🇺🇸"]),
    ("✓ Done ★", "Done", ["✓", "★"]),
    ("x ∐ y", "x y", ["∐"]),
    ("a\x00b", "a b", ["\x00"]),
    ("\x1b[31mred\x1b[0m alert", "red alert", []),
    ("one\x0ctwo", "one two", []),
    ("\x93Hi\x94 \x96 he said", '"Hi" – he said', []),
    ("─── ■ Title ■ ───", "Title", []),
    ("He sat (╯°□°)╯︵ ┻━┻ and left. :-)", "He sat and left.", []),
    ("(◕‿◕) Hi ^_^ ʕ•ᴥ•ʔ T_T \\o/ <3", "Hi", []),
    ("(ノಠ益ಠ)ノ彡┻━┻ He left. (ಥ_ಥ)", "He left.", []),
    ("( ͡° ͜ʖ ͡°) Thanks! <3", "Thanks!", []),
    ("xD it is (>_<) fine ;-) UwU", "it is fine", []),
    ("(°C) (−5) (…) f(x) x <5", "(degrees Celsius) (minus five) (...) f(x) x less than five", []),
    ("naïve café, 20 °C, ½ €5, x² H₂O №5 ① “…”", None, []),
]


@pytest.mark.parametrize(("text", "read", "left"), CASES, ids=[ascii(one[0]) for one in CASES])
def test_what_is_not_read_is_left_out_and_told_as_it_was_written(text, read, left) -> None:
    got = prepared(text)
    if read is not None:
        assert " ".join(one.text for one in got.utterances) == read
    assert [*got.left_out] == left
    if left:
        with pytest.raises(TextError):
            prepared(text, strict=True)
    else:
        assert prepared(text, strict=True) == got


def test_the_words_keep_what_was_written_beside_them() -> None:
    (one,) = prepared("The word 猫 means cat (ねこ).").utterances
    assert [word.written for word in one.words] == ["The", "word 猫", "means", "cat (ねこ)."]


def test_a_dictionary_may_say_how_it_is_spoken() -> None:
    got = prepared("The word 猫.", pronunciations={"猫": "neko"})
    assert (got.utterances[0].text, got.left_out) == ("The word neko.", ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("猫", "^this voice reads English only, not 猫 .CJK.: write it in"),
        ("Привет, мир!", r"^this voice reads English only, not Привет \(Cyrillic\), мир"),
        ("😊", "^the text has nothing to speak"),
        ("---", "^the text has nothing to speak"),
    ],
)
def test_of_a_whole_text_something_must_be_left_and_not_of_a_part(text, why) -> None:
    with pytest.raises(TextError, match=why):
        prepared(text)
    part = prepared(text, more=True)
    assert [(one.phonemes, one.pause_after_s) for one in part.utterances] == [("", 0.0)]


def test_a_warning_names_scripts_and_signs() -> None:
    left = ["猫", "Привет", "ツ", "あ", "ب", "ก", "😊", "🇺🇸", "\x07"]
    letters, signs = warnings_of("Hi.", "en", left)
    assert letters == (
        "left out, as this voice reads English only: 猫 (CJK), Привет (Cyrillic), ツ (Katakana),"
        " あ (Hiragana), ب (Arabic) and 1 more"
    )
    assert signs == (
        "left out, as there are no words for it: 😊 (smiling face with smiling eyes), 🇺🇸 (flag),"
        " U+0007"
    )


_FOREIGN = st.text("猫Пاअ한ツ😊✓∈\x07", min_size=1, max_size=5)


@given(st.lists(_FOREIGN, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_between_the_words_of_a_sentence_it_changes_nothing_else(foreign, random) -> None:
    words = ["The", "small", "cat", "sat", "on", "the", "old", "mat"]
    expected = prepared(f"{' '.join(words)}.").utterances[0]
    for part in foreign:
        words.insert(random.randint(1, len(words)), part)
    got = prepared(f"{' '.join(words)}.")
    assert [(one.text, one.phonemes) for one in got.utterances] == [
        (expected.text, expected.phonemes)
    ]
    assert set("".join(foreign)) == set("".join(got.left_out))
