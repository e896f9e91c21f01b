"""English of VALL-E X, and texts of several languages: the reference's ids, and ours."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import json
import re
from pathlib import Path
from typing import Any

import pytest

from models.checkpoints.vallex.load import VOCABULARY
from models.config import ModelConfig, ReaderName
from models.text import FrontEnd, TextError
from models.text.published.cmudict import ipa
from models.text.published.vallex import parity_reader, reference_phonemes
from tests.models.text.reading import prepared


def front_end(reader: ReaderName = "vall_e_x") -> FrontEnd:
    ids = {" ": VOCABULARY["_"], **VOCABULARY}
    config = ModelConfig(
        width=2, layers=1, heads=1, kv_heads=1, ffn=1, phonemes=("x",) * 67, phoneme_vocabulary=ids,
        reader=reader, text_marks=False, phonemes_by_language=True, languages=("en", "zh", "ja"),
    )  # fmt: skip
    return FrontEnd(config)


def spoken(text: str, reader: ReaderName = "vall_e_x", language: str = "en") -> str:
    found = prepared(text, front_end(reader), language=language)
    return " ".join(one.phonemes for one in found.utterances)


def cases(golden: Path, language: str) -> list[dict[str, Any]]:
    """Return the strings of a language with the reference's ids; skips a test without them."""
    path = golden / "vallex" / "tokenizer_strings.json"
    if not path.is_file():
        pytest.skip(f"{path} is missing: TTS_GOLDEN may name a golden folder that has it")
    return [one for one in json.loads(path.read_text()) if one["language"] == language]


def test_ids_of_english_are_those_of_the_reference_with_its_mistakes(golden: Path) -> None:
    found = cases(golden, "en")
    assert len(found) == 30
    for one in found:
        ids = front_end("vall_e_x_reference").encode(reference_phonemes(one["text"]))
        assert ids == one.get("ids", []), one["text"]


def test_stretches_of_several_languages_follow_each_other(golden: Path) -> None:
    """As in a prompt's transcript and a text; two of the six are no such text."""
    reader = front_end("vall_e_x_reference")
    read = 0
    for one in cases(golden, "mix"):
        stretches = re.findall(r"\[(EN|ZH|JA)\](.*?)\[\1\]", one["text"])
        if not stretches or any("[" in text for _, text in stretches):
            continue
        ids = []
        for language, text in stretches:
            try:
                phonemes = parity_reader(language.lower()).phonemize(text)
            except TextError as missing:
                pytest.skip(str(missing))
            ids += reader.encode(phonemes, language.lower())
        rows = map(["en", "zh", "ja"].index, one["languages"])
        assert ids == [70 * row + number for row, number in zip(rows, one["ids"], strict=True)]
        read += 1
    assert read == 4


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("It costs £1,250.", "ɪt kɔsts wən ˈθaʊzənd tu ˈhənəɹd ənd ˈfɪfti paʊnz."),
        ("She left at 7:30!", "ʃi lɛft æt ˈsɛvən ˈθəɹˌdi!"),
        ("Ninety-nine, forty-two", "ˈnaɪnti naɪn, ˈfɔɹti tu."),
        ("naïve", "naɪiv."),
        ("well-known", "ˈwɛlˈnoʊn."),
        ("50%", "ˈfɪfti pəɹˈsɛnt."),
    ],
)
def test_what_the_reference_does_not_read_is_spoken(text: str, phonemes: str) -> None:
    assert spoken(text) == phonemes


@pytest.mark.parametrize("text", ["The zorblax quantified its croquette.", 'Qwxyz; "quoted" (x)'])
def test_every_symbol_is_one_of_the_model(text: str) -> None:
    found = spoken(text)
    assert found
    assert 0 not in front_end().encode(found)
    assert "*" not in found


def test_words_of_the_dictionary_are_the_same_both_ways() -> None:
    text = "The quick brown fox jumps over the lazy dog, and the full moon fell."
    assert spoken(text) == spoken(text, "vall_e_x_reference")


@pytest.mark.parametrize(
    ("phones", "expected"),
    [
        ("r eh1 d", "ɹɛd"),
        ("hh ah0 l ow1", "hɛˈloʊ".replace("ɛ", "ə")),
        ("m ih1 s t er0", "ˈmɪstəɹ"),
        ("k r iy0 ey1 t", "kɹiˈeɪt"),
        ("ih0 k s p eh1 n s ih0 v", "ɪkˈspɛnsɪv"),
        ("jh er1 n iy0", "ˈdʒəɹni"),
    ],
)
def test_stress_is_marked_where_the_training_data_has_it(phones: str, expected: str) -> None:
    assert ipa(phones.split()) == expected


def test_ids_carry_the_language_and_an_unknown_one_is_refused() -> None:
    reader = front_end()
    assert reader.encode("a", "zh") == [70 + one for one in reader.encode("a", "en")]
    with pytest.raises(TextError, match="the model does not speak German"):
        prepared("hello", reader, language="de")
