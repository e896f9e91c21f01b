"""The published forms against a slow forward over their own tensors, and against each other."""

import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from app.engine.utterance import UtteranceSpec
from lab.porting.convert import Switches, convert
from models.checkpoints.builtin import load_lm
from models.checkpoints.published import load as public
from models.checkpoints.published.load import load_public, read_public
from models.checkpoints.published.metadata import describe
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.app.engine.decoding import decode_utterance
from tests.models.valle_oracle import Oracle
from tests.toy import make_public as toy
from tests.toy.make_public import load_switched

IDS = [1, 17, 80, 4, 200, 33, 2]
LANGUAGE = 2


def some(frames: int, seed: int) -> Tensor:
    return torch.randint(toy.CODES, (frames, 8), generator=torch.Generator().manual_seed(seed))


CODES, PROMPT = some(6, 1), some(5, 2)


def near(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) < 1e-4


@pytest.mark.parametrize("form", ["ar+nar", "ar+nar-len"])
@pytest.mark.parametrize(
    "switches",
    [
        Switches("exclusive", "full", language=False),
        Switches("inclusive", "causal", language=True),
        Switches("none", "full", language=True),
    ],
    ids=str,
)
def test_logits_are_those_of_the_slow_forward(
    tmp_path: Path, form: toy.Form, switches: Switches
) -> None:
    path = toy.make_public(tmp_path, form)
    model = load_switched(path, switches)
    oracle = Oracle(
        load_file(path),
        toy.HEADS,
        str(switches.code_sums),
        str(switches.nar_mask),
        bool(switches.language),
    )
    compare(model, oracle, form)


def compare(model: Valle, oracle: Oracle, form: toy.Form) -> None:
    for prompt in (None, PROMPT):
        expect = partial(oracle.logits, lang=LANGUAGE, prompt=prompt)
        prefix = model.prefix(IDS, 0, language=LANGUAGE, prompt=prompt)
        near(model.ar_logits(prefix, CODES), expect("ar", IDS, CODES))
        if form == "ar+nar-len":
            masked = torch.where(torch.arange(6) % 2 == 0, CODES[:, 0], toy.CODES)
            found = model.masked_logits(prefix, masked)
            near(found, expect("masked", IDS, masked))
            digits = torch.tensor([0, 4, 2])
            expected = expect("len", IDS, digits)[-1]
            near(model.length_logits(prefix, digits), expected)
        for level in (1, 2, 3, 7):
            prefix = model.prefix(IDS, level, language=LANGUAGE, prompt=prompt)
            found = model.nar_logits(prefix, CODES, level)
            near(found, expect("nar", IDS, CODES, level=level))


def test_a_model_whose_positions_count_through_speaks_as_the_reference(tmp_path: Path) -> None:
    flags = toy.FLAGS | {"unified_position_ids": True}
    path = toy.make_public(tmp_path, "ar+nar-len", experimental=flags)
    oracle = Oracle(load_file(path), toy.HEADS, unified=True)
    model = load_public(path)
    compare(model, oracle, "ar+nar-len")
    greedy = resolve(SamplingParams(seed=0, temperature=0.0))
    codes = speak(model, greedy, max_frames=8)
    logits = oracle.logits("ar", IDS, codes, lang=LANGUAGE, prompt=PROMPT)
    assert codes[:, 0].tolist() == logits[: len(codes)].argmax(-1).tolist()


def test_a_language_without_a_row_takes_the_last_one(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    short = load_file(path)
    short["langs_emb.weight"] = short["langs_emb.weight"][:2].clone()
    save_file(short, path, toy.metadata("ar+nar"))
    model = load_switched(path, Switches(language=True))
    assert model.config.languages == ("en", "ja", "de", "fr", "zh", "ko")
    korean, japanese = (model.prefix(IDS, 0, language=i).embeddings for i in (5, 1))
    assert torch.equal(korean, japanese)


def speak(model: Valle, params: SamplingParams, *, max_frames: int = 20) -> Tensor:
    inputs = UtteranceSpec(
        IDS, params, seed=1, utterance=0, max_frames=max_frames, prompt=PROMPT, language=LANGUAGE
    )
    return decode_utterance(model, torch.zeros(8, toy.CODES, 4), inputs).codes


PARAMS = {
    "drawn": resolve(SamplingParams(seed=1, nar_temperature=1.0)),
    "greedy": resolve(SamplingParams(seed=1, temperature=0.0)),
}


@pytest.mark.parametrize("knobs", PARAMS)
def test_every_form_of_the_same_weights_gives_the_same_codes(tmp_path: Path, knobs: str) -> None:
    full = toy.without_biases(toy.tensors("ar+nar-len"))
    a, b = tmp_path / "a.sft", tmp_path / "b.sft"
    save_file(toy.without_masked(full), a, toy.metadata("ar+nar"))
    save_file(full, b, toy.metadata("ar+nar-len"))
    hf = toy.make_public(tmp_path / "hf", "hf")
    one, *others = (speak(load_public(path), PARAMS[knobs]) for path in (a, b, hf))
    assert len(one) > 3
    assert one.shape[1] == 8
    assert all(torch.equal(one, other) for other in others)


@pytest.mark.parametrize("form", ["ar+nar", "ar+nar-len", "hf"])
def test_a_converted_model_is_the_same_model(tmp_path: Path, form: toy.Form) -> None:
    source = toy.make_public(tmp_path / "public", form)
    switches = Switches("none", "causal", language=True)
    convert(source, tmp_path / "ours", switches)
    theirs, ours = load_switched(source, switches), load_lm(tmp_path / "ours")
    assert ours.config == theirs.config
    assert all(
        torch.equal(tensor, ours.state_dict()[name]) for name, tensor in theirs.state_dict().items()
    )
    assert torch.equal(speak(theirs, PARAMS["drawn"]), speak(ours, PARAMS["drawn"]))
    if form != "ar+nar":
        masked = resolve(SamplingParams(preset="vall_e", level_0="masked", nar_len_frames=12))
        assert torch.equal(speak(theirs, masked), speak(ours, masked))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_converting_keeps_every_bit_of_any_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "fp32.sft"
    save_file(toy.tensors("ar+nar", dtype=dtype), path, toy.metadata("ar+nar"))
    convert(path, tmp_path / "ours")
    assert load_file(tmp_path / "ours" / "lm-1.safetensors")["separator"].dtype == dtype
    theirs, ours = load_public(path), load_lm(tmp_path / "ours")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name])


def test_one_line_tells_layout_sizes_and_switches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = toy.make_public(tmp_path, "ar+nar-len")
    with caplog.at_level(logging.INFO):
        load_public(path)
    assert len(caplog.records) == 1
    line = caplog.records[0].message
    for part in (
        "layout ar+nar-len", "2 layers of 16", "float16", "code sums exclusive",
        "NAR mask full", "no language segment", "tools convert",
    ):  # fmt: skip
        assert part in line


def test_switches_come_from_the_file_and_else_from_its_era(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "HEAD_DIM", toy.WIDTH // toy.HEADS)

    def config(form: toy.Form, metadata: dict[str, str] | None) -> tuple[str, ...]:
        path = tmp_path / "fp32.sft"
        save_file(toy.tensors(form), path, metadata)
        found = read_public(path).config
        assert metadata or found.name == form
        assert found.has_null_condition
        assert found.nar_has_null_condition
        return (found.prompt_sums, found.response_sums, found.nar_mask, " ".join(found.segments))

    short = "phn level prom resp"
    assert config("ar+nar", None) == ("exclusive", "exclusive", "causal", short)
    assert config("ar+nar-len", None) == ("exclusive", "exclusive", "full", short)
    bare = toy.metadata("ar+nar", experimental={"split_classifiers": True})
    assert config("ar+nar", bare) == ("none", "none", "causal", short)
    one_side = toy.FLAGS | {"audio_embedding_sums": "resp"}
    lang = toy.metadata("ar+nar", capabilities=["ar", "nar", "lang"], experimental=one_side)
    assert config("ar+nar", lang) == ("none", "exclusive", "full", "phn lang level prom resp")


@pytest.mark.parametrize(
    ("size", "width", "layers"),
    [("quarter", 256, 12), ("half", 512, 12), ("full", 1024, 12), ("extended", 1024, 16),
     ("double", 1024, 24)],
)  # fmt: skip
def test_a_size_is_said_by_its_name(size: str, width: int, layers: int) -> None:
    described = describe(toy.metadata("ar+nar", size=size), "")
    assert described is not None
    assert (described.sizes.dim, described.sizes.layers) == (width, layers)


def test_a_file_says_its_form(tmp_path: Path) -> None:
    for form in ("ar+nar", "ar+nar-len", "hf"):
        assert read_public(toy.make_public(tmp_path / form, form)).form == form


def test_the_vocabulary_comes_along_with_its_aliases(tmp_path: Path) -> None:
    for form in ("ar+nar", "hf"):
        config = read_public(toy.make_public(tmp_path / form, form)).config
        assert config.phoneme_ids == toy.SYMMAP
        assert config.phonemes[:5] == ("<mask>", " ", "a", "b", "ab")
        assert len(config.phonemes) == 253


def test_a_head_without_a_bias_has_one_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "fp32.sft"
    plain = toy.without_biases(toy.tensors("ar+nar-len"))
    save_file(plain, path, toy.metadata("ar+nar-len"))
    compare(load_public(path), Oracle(plain, toy.HEADS), "ar+nar-len")


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    assert read_public(tmp_path).path == path
