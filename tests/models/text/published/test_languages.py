# ruff: noqa: RUF001 - IPA and punctuation of every script
"""Public checkpoints read six languages as their training did, and refuse what no voice reads."""

import json
import sys
from pathlib import Path

import pytest

from models.text import TextError, Utterance
from models.text.published.japanese import _tokenizer
from models.text.published.languages import LANGUAGES, reference_reader
from models.text.source import Rewritten
from tests.models.text.reading import prepare, reading

# Where espeak-ng 1.52 differs from 1.51, which made the golden phonemes.
OTHER_IN_1_52 = {"Four hours of steady work faced us.", "你好，今天天气很好。"}
# What the reference loses or misreads: we write numbers out before they are spoken.
BETTER_HERE = {
    'She said: "I\'ll be back at 5:30 p.m. (maybe)."',
    "Dr. Smith paid $42.50 for 3 books in 1999.",
}


def read(text: str, language: str) -> str:
    reader = reference_reader(language)
    return reader.phonemize(reader.clean(Rewritten.of(text)).text)


def utterances(text: str, language: str, symbols: str = "") -> list[Utterance]:
    return prepare(text, reading(symbols or "a", public=True), language=language)


def test_phonemes_equal_the_reference_but_for_named_rows(golden_valle: Path) -> None:
    rows = json.loads((golden_valle / "phonemes.json").read_text())["rows"]
    differing = {row["text"] for row in rows if read(row["text"], row["lang"]) != row["phonemes"]}
    assert differing == OTHER_IN_1_52 | BETTER_HERE


def test_languages_come_in_the_order_of_the_published_ids() -> None:
    assert list(LANGUAGES) == ["en", "ja", "de", "fr", "zh", "ko"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Ich mag Computer und Jazz."),
        ("fr", "le weekend"),
        ("ko", "컴퓨터 hello"),
        ("zh", "单词 English 单词"),
    ],
)
def test_switches_of_language_leave_no_marks(language: str, text: str) -> None:
    assert not set(read(text, language)) & set("()")


@pytest.mark.parametrize(
    ("language", "text", "marks"),
    [
        ("en", "Wait... (really) “no” — yes!", '...()""—!'),
        ("fr", "Il dit : « oui », et part ?", ":«»,?"),
        ("de", "Ja; nein: „gut“!", ';:""!'),
        ("zh", "你好,你好。", ","),
        ("ja", "「ほん」、です。", ""),
    ],
)
def test_marks_stay_as_in_training(language: str, text: str, marks: str) -> None:
    assert [s for s in read(text, language) if s in '.,:;!?"“”«»()—…。、「」'] == list(marks)


def test_a_number_in_the_middle_loses_nothing() -> None:
    assert read("Es ist 3,50 Euro wert", "de") == "ɛsɪst dɾˈaɪ kɔmɑː fˈʏnf nˈʊl ˈɔøroː vˈɛɾt"


def test_chinese_tones_are_marks_and_not_digits() -> None:
    assert not set(read("你好，今天天气很好。价格是25元。", "zh")) & set("0123456789")
    assert "ˉ" in read("你好", "zh")


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("zh", "你好！你好吗？我很好。", ["你好！", "你好吗？", "我很好。"]),
        ("zh", "你好!我很好", ["你好!", "我很好"]),
        ("ja", "ほんです。「ほん！」です。", ["ほんです。", "「ほん！」", "です。"]),
        ("ko", "안녕하세요. 좋아요!", ["안녕하세요.", "좋아요!"]),
        ("de", "Guten Tag. Wie geht es?", ["Guten Tag.", "Wie geht es?"]),
    ],
)
def test_sentences_are_apart_with_and_without_spaces(
    language: str, text: str, sentences: list[str]
) -> None:
    assert [utterance.text for utterance in utterances(text, language)] == sentences


def test_a_long_sentence_without_spaces_fits() -> None:
    front_end = reading(max_phonemes=60, public=True)
    spoken = prepare("今天天气很好，" * 20, front_end, language="zh")
    assert all(0 < len(utterance.phonemes) <= 60 for utterance in spoken)
    assert "".join(utterance.text for utterance in spoken).count("天气") == 20


def test_inline_phonemes_and_pauses_work_in_every_language() -> None:
    for language in LANGUAGES:
        first, second = utterances("[[hˈalo]] [pause:0.5s] 7", language, symbols="hˈalo")
        assert (first.phonemes, first.pause_after_s) == ("hˈalo", 0.5)
        assert second.phonemes


def test_only_languages_with_marks_get_a_full_stop() -> None:
    closed = {
        code: utterances("7", code, symbols=".")[0].phonemes.endswith(".") for code in LANGUAGES
    }
    assert closed == {"en": True, "de": True, "fr": True, "ko": True, "ja": False, "zh": False}


@pytest.mark.parametrize(
    ("language", "text", "named"),
    [
        ("de", "Guten 早 Tag", r"reads German only, not 早 \(CJK\)"),
        ("fr", "привет", r"reads French only, not привет \(Cyrillic\)"),
        ("zh", "こ", r"reads Chinese only, not こ \(Hiragana\)"),
        ("zh", "\U00020bb7", r"\(CJK\)"),
        ("ko", "漢字", r"reads Korean only, not 漢字 \(CJK\)"),
        ("ja", "한", r"reads Japanese only, not 한 \(Hangul\)"),
        ("ja", "שלום", r"\(Hebrew\)"),
    ],
)
def test_letters_of_other_scripts_are_refused_by_name_where_that_is_asked_for(
    language: str, text: str, named: str
) -> None:
    with pytest.raises(TextError, match=named):
        prepare(text, reading("a", public=True), language=language, strict=True)


def test_an_unknown_language_is_refused_with_the_choice() -> None:
    with pytest.raises(TextError, match=r"'xx' is not supported; .*'de', 'en', 'fr'"):
        reference_reader("xx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kanji", "kana"),
    [
        ("東京タワー", "とうきょうタワー"),
        ("日本語を勉強しています。", "にほんごをべんきょうしています。"),
        ("時々、人々", "ときどき、ひとびと"),
        ("私は 学生です", "わたしは がくせいです"),
    ],
)
def test_kanji_are_read_as_their_kana(kanji: str, kana: str) -> None:
    pytest.importorskip("janome")
    assert read(kanji, "ja") == read(kana, "ja")


def test_the_text_of_an_utterance_keeps_its_kanji() -> None:
    pytest.importorskip("janome")
    assert [utterance.text for utterance in utterances("今日。明日。", "ja")] == [
        "今日。",
        "明日。",
    ]


def test_kanji_without_a_reading_are_named() -> None:
    pytest.importorskip("janome")
    assert [one.text for one in utterances("龘です", "ja")] == ["です"]
    with pytest.raises(TextError, match="not 龘"):
        prepare("龘です", reading("a", public=True), language="ja", strict=True)


def test_kanji_without_the_extra_are_refused_and_kana_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "janome.tokenizer", None)
    _tokenizer.cache_clear()
    with pytest.raises(TextError, match="install the extra `japanese`"):
        utterances("今日", "ja")
    assert utterances("きょう", "ja")
