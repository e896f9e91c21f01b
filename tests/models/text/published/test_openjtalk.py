"""Japanese of VALL-E X: the reference's ids, and ours where it does not read."""

# ruff: noqa: RUF001 - IPA and wide marks are full of characters that look like Latin ones

import os
import sys
from pathlib import Path

import pytest

from models.text.errors import TextError
from models.text.published import openjtalk
from models.text.published.openjtalk import DICTIONARY, accented, japanese_reader
from tests.models.text.published.test_vallex import cases, front_end, spoken
from tests.models.text.reading import prepared


@pytest.fixture
def _installed() -> None:
    pytest.importorskip("pyopenjtalk", reason="the extra `vallex` is not installed: pyopenjtalk")
    folder = Path(os.environ.get("OPEN_JTALK_DICT_DIR") or DICTIONARY)
    if not (folder / "sys.dic").is_file():
        pytest.skip(f"there is no dictionary of Open JTalk in {folder}")


def labels(*phrases: tuple[str, int]) -> list[str]:
    """Return Open JTalk's labels of accent phrases: moras of phones, and the accented one."""
    found = ["xx^xx-sil+a=b/A:xx+xx+xx/B:xx/F:xx_xx#0"]
    for moras, accent in phrases:
        count = len(moras.split())
        for place, mora in enumerate(moras.split(), start=1):
            where = f"/A:{place - accent}+{place}+{count - place + 1}/B:xx/F:{count}_{accent}#0"
            found += [f"xx^xx-{phone}+a=b{where}" for phone in mora.split("-")]
    return [*found, found[0]]


@pytest.mark.parametrize(
    ("phrases", "phonemes"),
    [
        ([("k-o N n-i ch-i w-a", 5)], "ko↑nn^itʃiwa"),
        ([("s-e k-a i", 1)], "se↓kai"),
        ([("ky-o o w-a", 1), ("i i", 1)], "kjo↓owa i↓i"),
        ([("s-a cl k-i", 1)], "sa↓k#ki"),
        ([("k-o N p-u", 1)], "ko↓mpɯ"),
        ([("sh-i N k-a N s-e N", 3)], "ʃi↑ŋka↓NseN"),
        ([("hy-a k-U", 2)], "ça↑kɯ*"),
        ([("f-u j-i", 1)], "ɸɯ↓dʑi"),
        ([("ny-a N ch-a", 1)], "n^a↓n^tʃa"),
        ([("r-i y-u u", 1)], "ɾi↓jɯɯ"),
    ],
)
def test_labels_become_phonemes_with_accents(phrases: list[tuple[str, int]], phonemes: str) -> None:
    assert accented(labels(*phrases)) == phonemes


@pytest.mark.usefixtures("_installed")
def test_ids_are_those_of_the_reference(golden: Path) -> None:
    found = cases(golden, "ja")
    assert len(found) == 10
    reader = japanese_reader(as_reference=True)
    for one in found:
        phonemes = reader.phonemize(one["text"])
        ids = [140 + number for number in one["ids"]]
        assert front_end("vall_e_x_reference").encode(phonemes, "ja") == ids, one["text"]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("50%", "五十パーセント"),
        ("1,234円", "千二百三十四円"),
        ("「はい」と言った。", "はい と言った。"),
        ("3.5", "三点五"),
    ],
)
def test_what_the_reference_does_not_read_is_spoken(text: str, same: str) -> None:
    assert spoken(text, language="ja") == spoken(same, language="ja")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("text", ["「ええと…」（はい）～・#1 & a_b", "コーヒー！？ WiFi"])
def test_every_symbol_is_one_of_the_model(text: str) -> None:
    assert 140 not in front_end().encode(spoken(text, language="ja"), "ja")


@pytest.mark.usefixtures("_installed")
def test_kanji_without_a_reading_are_left_out_and_told() -> None:
    found = prepared("龘です", front_end(), language="ja")
    assert found.left_out == ("龘",)
    assert [one.text for one in found.utterances] == ["です"]


def test_without_the_extra_it_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyopenjtalk", None)
    monkeypatch.setitem(sys.modules, "pyopenjtalk.openjtalk", None)
    openjtalk._open_jtalk.cache_clear()
    with pytest.raises(TextError, match=r"^Japanese cannot be read here: .*scripts/install vallex"):
        prepared("はい", front_end(), language="ja")


def test_without_a_dictionary_it_is_refused_and_nothing_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyopenjtalk", reason="the extra `vallex` is not installed: pyopenjtalk")
    monkeypatch.setenv("OPEN_JTALK_DICT_DIR", str(tmp_path))
    openjtalk._open_jtalk.cache_clear()
    with pytest.raises(TextError, match="apt-get install open-jtalk-mecab-naist-jdic"):
        prepared("はい", front_end(), language="ja")
    assert not [*tmp_path.iterdir()]
    openjtalk._open_jtalk.cache_clear()
