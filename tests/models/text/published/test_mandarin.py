"""Chinese of VALL-E X: the reference's ids, and ours where it does not read."""

# ruff: noqa: RUF001 - IPA and wide marks are full of characters that look like Latin ones

import sys
from pathlib import Path

import pytest

from models.text.errors import TextError
from models.text.published import mandarin
from models.text.published.mandarin import chinese_reader, ipa_of_bopomofo
from tests.models.text.published.test_vallex import cases, front_end, spoken
from tests.models.text.reading import prepared

PACKAGES = ("cn2an", "jieba", "pypinyin")


@pytest.fixture
def _installed() -> None:
    for name in PACKAGES:
        pytest.importorskip(name, reason=f"the extra `vallex` is not installed: {name}")


@pytest.mark.parametrize(
    ("bopomofo", "ipa"),
    [
        ("ㄋㄧˇㄏㄠˇ", "ni↓↑xɑʊ↓↑"),
        ("ㄕˋ", "s`ɹ`↓"),
        ("ㄙˋ", "sɹ↓"),
        ("ㄖˋ", "ɹ`ɹ`↓"),
        ("ㄦˊ", "əɹ`↑"),
        ("ㄔˉ", "ts`ʰɹ`→"),
        ("ㄗˇ", "ts⁼ɹ↓↑"),
        ("ㄐㄧㄡˋ", "tʃ⁼joʊ↓"),
        ("ㄐㄧㄝˋ", "tʃ⁼iɛ↓"),
        ("ㄏㄨㄞˋ", "xwaɪ↓"),
        ("ㄋㄩˇ", "nɥ↓↑"),
        ("ㄩㄢˊ", "ɥæn↑"),
        ("ㄅㄛˉ", "p⁼wo→"),
        ("ㄌㄜ˙", "lə"),
        ("，a", "，a"),
    ],
)
def test_bopomofo_is_written_in_the_symbols_of_the_model(bopomofo: str, ipa: str) -> None:
    assert ipa_of_bopomofo(bopomofo) == ipa


@pytest.mark.usefixtures("_installed")
def test_ids_are_those_of_the_reference(golden: Path) -> None:
    found = cases(golden, "zh")
    assert len(found) == 10
    reader = chinese_reader(as_reference=True)
    for one in found:
        phonemes = reader.phonemize(one["text"])
        ids = [70 + number for number in one["ids"]]
        assert front_end("vall_e_x_reference").encode(phonemes, "zh") == ids, one["text"]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("50%", "百分之五十"),
        ("１，２３４元", "一千二百三十四元"),
        ("“你好”（世界）", "你好 世界"),
        ("12345678901234567890", "一二三四五六七八九零一二三四五六七八九零"),
        ("3.5", "三点五"),
    ],
)
def test_what_the_reference_does_not_read_is_spoken(text: str, same: str) -> None:
    assert spoken(text, language="zh") == spoken(same, language="zh")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("text", ["他说：“好的——没问题……” [ok] #1 & a_b", "WiFi～C++・完？！"])
def test_every_symbol_is_one_of_the_model(text: str) -> None:
    assert 70 not in front_end().encode(spoken(text, language="zh"), "zh")


@pytest.mark.usefixtures("_installed")
def test_what_has_no_reading_is_left_out_and_told() -> None:
    found = prepared("你好 привет 猫。", front_end(), language="zh")
    assert found.left_out == ("привет",)
    assert spoken("你好 猫。", language="zh") == " ".join(one.phonemes for one in found.utterances)


@pytest.mark.parametrize("missing", PACKAGES)
def test_without_the_extra_it_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in PACKAGES[: PACKAGES.index(missing)]:
        pytest.importorskip(name, reason=f"the extra `vallex` is not installed: {name}")
    monkeypatch.setitem(sys.modules, missing, None)
    mandarin._packages.cache_clear()
    with pytest.raises(TextError, match=r"^Chinese cannot be read here: .*scripts/install vallex"):
        prepared("你好", front_end(), language="zh")
    mandarin._packages.cache_clear()
