"""English of VALL-E X: the reference's ids, and ours where it does not read."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import json
from pathlib import Path

import pytest

from models.checkpoints.vallex.load import VOCABULARY
from models.config import ModelConfig, ReaderName
from models.text import FrontEnd, TextError
from models.text.published.cmudict import ipa
from models.text.published.vallex import reference_phonemes
from tests.models.text.reading import prepared


def front_end(reader: ReaderName = "vall_e_x") -> FrontEnd:
    ids = {" ": VOCABULARY["_"], **VOCABULARY}
    config = ModelConfig(
        width=2, layers=1, heads=1, kv_heads=1, ffn=1, phonemes=("x",) * 67, phoneme_vocabulary=ids,
        reader=reader, text_marks=False, phonemes_by_language=True, languages=("en", "zh", "ja"),
    )  # fmt: skip
    return FrontEnd(config)


def spoken(text: str, reader: ReaderName = "vall_e_x") -> str:
    return " ".join(one.phonemes for one in prepared(text, front_end(reader)).utterances)


def test_ids_of_english_are_those_of_the_reference_with_its_mistakes(golden: Path) -> None:
    path = golden / "vallex" / "tokenizer_strings.json"
    if not path.is_file():
        pytest.skip(f"{path} is missing: TTS_GOLDEN may name a golden folder that has it")
    cases = [one for one in json.loads(path.read_text()) if one["language"] == "en"]
    assert len(cases) == 30
    for one in cases:
        found = front_end("vall_e_x_reference").encode(reference_phonemes(one["text"]))
        assert found == one.get("ids", []), one["text"]


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


def test_ids_carry_the_language_and_other_languages_are_refused_by_name() -> None:
    reader = front_end()
    assert reader.encode("a", "zh") == [70 + one for one in reader.encode("a", "en")]
    for language, name in (("zh", "Chinese"), ("ja", "Japanese")):
        with pytest.raises(TextError, match=name):
            prepared("hello", reader, language=language)
