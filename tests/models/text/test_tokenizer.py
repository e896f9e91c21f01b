"""The tokenizer equals the reference's on golden strings, from the checkpoint's names alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from models.config import BOS_ID, EOS_ID, UNKNOWN_ID
from models.text.tokenizer import Tokenizer

SMALL = {"<unk>": 0, "<bos>": 1, "</eos>": 2, "<mask>": 3, " ": 4, "a": 5, "ä": 5, "b": 6, "c": 7}
MERGED = SMALL | {"ab": 8, "abc": 9, "ca": 10}


def golden_json(golden_valle: Path, name: str) -> Any:
    return json.loads((golden_valle / name).read_text())


@pytest.fixture(scope="session", params=["dev", "dev_ar_nar"])
def published(request: pytest.FixtureRequest, golden_valle: Path) -> Tokenizer:
    with safe_open(golden_valle / request.param / "fp32.sft", framework="pt") as file:
        return Tokenizer(json.loads(file.metadata()["userdata"])["symmap"])


def test_edge_cases_equal_the_reference(published: Tokenizer, golden_valle: Path) -> None:
    for row in golden_json(golden_valle, "tokenizer_strings.json"):
        assert published.encode(row["s"]) == row["ids"], row["s"]


def test_ids_of_phonemes_equal_the_reference(published: Tokenizer, golden_valle: Path) -> None:
    rows = golden_json(golden_valle, "phonemes.json")["rows"]
    assert len(rows) == 27
    for row in rows:
        assert published.encode(row["phonemes"]) == row["ids"], row["text"]


def test_every_merge_of_the_published_vocabulary_is_found(published: Tokenizer) -> None:
    assert len(published._merges) == 173


def test_a_merged_name_is_one_id(golden_valle: Path, published: Tokenizer) -> None:
    with safe_open(golden_valle / "dev" / "fp32.sft", framework="pt") as file:
        names = json.loads(file.metadata()["userdata"])["symmap"]
    for name, number in names.items():
        assert published.encode(name) == [BOS_ID, number, EOS_ID], name


def test_without_merges_ids_are_framed_and_unknown_symbols_are_marked() -> None:
    built_in = Tokenizer({"a": 3, "b": 4})
    assert built_in.encode("ba?") == [BOS_ID, 4, 3, UNKNOWN_ID, EOS_ID]
    assert built_in.lengths("ba?") == [0, 1, 1, 1, 0]
    assert built_in.encode("") == [BOS_ID, EOS_ID]


def test_the_pair_learnt_first_wins_and_ties_go_left() -> None:
    encode = Tokenizer(MERGED).encode
    assert encode("abc") == [1, 9, 2]
    assert encode("cab") == [1, 7, 8, 2]  # "ab" is older than "ca"
    assert encode("caca") == [1, 10, 10, 2]


def test_a_letter_and_its_twin_in_two_codes_merge_to_the_same_ids() -> None:
    assert Tokenizer(MERGED).encode("äbc") == [1, 9, 2]
    assert Tokenizer(MERGED | {"äb": 8}).encode("ab äb") == [1, 8, 4, 8, 2]


def test_unknown_symbols_stay_apart_and_special_names_are_themselves() -> None:
    encode = Tokenizer(MERGED).encode
    assert encode("a??") == [1, 5, UNKNOWN_ID, UNKNOWN_ID, 2]
    assert encode("a<mask>b</eos>") == [1, 5, 3, 6, 2, 2]


@given(st.text(alphabet="abcä ?", max_size=30))
def test_ids_spell_the_string(text: str) -> None:
    spelling = {number: name for name, number in MERGED.items() if name != "ä"} | {0: "?"}
    ids = Tokenizer(MERGED).encode(text)
    assert (ids[0], ids[-1]) == (BOS_ID, EOS_ID)
    assert "".join(spelling[number] for number in ids[1:-1]) == text.replace("ä", "a")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"abca": 8}, "'abca' .* no merge of two"),
        ({"xy": 8}, "'xy' .* no merge of two"),
        ({"ab": 8, "abcab": 9}, "'abcab' .* no merge of two"),
        ({"<bos>": 7}, "<bos> has id 7, expected 1"),
        ({"d": -1}, "negative"),
    ],
)
def test_a_vocabulary_of_another_kind_is_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer(SMALL | wrong)
