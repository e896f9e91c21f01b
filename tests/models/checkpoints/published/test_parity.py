"""The published layouts against what the reference code computes with the same random weights.

The bounds are those of the data's README: 5e-4 on logits, ids exactly.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lab.porting.convert import Switches
from models.config import CodeSums
from models.prefix import Prefix
from models.stack.cache import KVCache
from models.valle import Valle
from samplers.ops.guidance import guide
from tests.toy.make_public import load_switched

TOLERANCE = 5e-4

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    folder: Path
    inputs: dict[str, Any]
    expected: dict[str, Tensor]
    meta: dict[str, Any]

    def load(self, sums: CodeSums = "inclusive", language: bool = True) -> Valle:
        return load_switched(self.folder / "fp32.sft", Switches(sums, None, language))

    @property
    def prompt(self) -> Tensor:
        return torch.tensor(self.inputs["prom"])

    @property
    def codes(self) -> Tensor:
        return torch.tensor(self.inputs["codes"])

    def prefix(self, model: Valle, level: int) -> Prefix:
        ids, language = self.inputs["phn"], self.inputs["lang"]
        return model.prefix(ids, level, language=language, prompt=self.prompt)

    def null(self, model: Valle, level: int) -> Prefix:
        return model.null_prefix(level, language=self.inputs["lang"])


@pytest.fixture(params=["dev", "dev_ar_nar"], scope="module")
def reference(request: pytest.FixtureRequest, golden_valle: Path) -> Reference:
    return read(golden_valle / request.param)


@pytest.fixture(scope="module")
def masked(golden_valle: Path) -> Reference:
    return read(golden_valle / "dev")


def read(folder: Path) -> Reference:
    inputs, meta = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("inputs", "meta")
    )
    return Reference(folder, inputs, load_file(folder / "expected.safetensors"), meta)


def ar_logits(model: Valle, prefix: Prefix, response: Tensor) -> Tensor:
    """Return ``[k + 1, V + 1]`` of one pass over the whole sequence."""
    x = torch.cat([prefix.embeddings, model.embed_response(response[:, None], 0)])
    positions = torch.cat([prefix.positions, torch.arange(len(response))])
    return model.logits(model.transformer(x[None], positions[None])[0, len(prefix) - 1 :], 0)


def ar_greedy(model: Valle, prefix: Prefix, steps: int) -> tuple[list[int], Tensor]:
    """Decode with the cache, and return the ids and the logits they came from."""
    cache = KVCache(model.config, slots=1, max_length=len(prefix) + steps)
    hidden = model.read(prefix, cache, 0)[0][-1:]
    ids: list[int] = []
    rows: list[Tensor] = []
    for step in range(steps):
        rows.append(model.logits(hidden, 0))
        ids.append(int(rows[-1].argmax()))
        embedding = model.embed_response(torch.tensor([[ids[-1]]]), 0)
        hidden = model.transformer.step(embedding, torch.tensor([step]), cache, [0])[0]
    return ids, torch.cat(rows)


def nar_greedy(reference: Reference, model: Valle, ar_codes: Tensor) -> Tensor:
    codes = ar_codes[:, None]
    for level in range(1, 8):
        sampled = model.nar_logits(reference.prefix(model, level), codes, level).argmax(-1)
        codes = torch.cat([codes, sampled[:, None]], 1)
    return codes


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    difference = float((found - expected).abs().max())
    log.info("greatest difference %.1e", difference)
    assert difference < TOLERANCE


def guided(own: Tensor, null: Tensor, strength: float, rescale: float) -> Tensor:
    """Guide all rows as one: the reference rescales by one deviation over all of them."""
    knobs = torch.tensor([[strength], [rescale]])
    return guide(own[None], null[None], *knobs)[0]


def nar_rows(reference: Reference, model: Valle, levels: Sequence[int]) -> Tensor:
    codes = reference.codes
    return torch.stack([
        model.nar_logits(reference.prefix(model, q), codes[:, :q], q) for q in levels
    ])


def test_embeddings_and_positions_are_the_references(reference: Reference) -> None:
    model = reference.load()
    prefix = reference.prefix(model, 0)
    response = model.embed_response(reference.codes[: reference.inputs["k"]], 0)
    positions = [*prefix.positions.tolist(), *range(len(response))]
    assert positions == reference.expected["ar_prefill_position_ids"].tolist()
    found = torch.cat([prefix.embeddings, response])
    assert torch.equal(found, reference.expected["ar_prefill_embeds"])


@pytest.mark.parametrize("language", [True, False])
def test_ar_logits_and_greedy_ids(reference: Reference, language: bool) -> None:
    model = reference.load(language=language)
    suffix = "" if language else "_nolang"
    prefix = reference.prefix(model, 0)
    response = reference.codes[: reference.inputs["k"], 0]
    logits = ar_logits(model, prefix, response)
    assert_near(logits, reference.expected[f"ar_prefill_logits{suffix}"])
    ids, cached = ar_greedy(model, prefix, reference.inputs["ar_steps"])
    assert ids == reference.expected[f"ar_greedy{suffix}"].tolist()
    uncached = ar_logits(model, prefix, torch.tensor(ids[:-1]))
    assert (cached - uncached).abs().max() < 1e-4 * max(1.0, float(uncached.abs().max()))


def test_guided_ar_logits_are_those_of_the_reference(reference: Reference) -> None:
    model, inputs = reference.load(), reference.inputs
    response = reference.codes[: inputs["k"], 0]
    own = ar_logits(model, reference.prefix(model, 0), response)
    null = ar_logits(model, reference.null(model, 0), response)
    assert_near(null, reference.expected["ar_null_logits"])
    strength, rescale = inputs["cfg_strength"], inputs["cfg_rescale"]
    assert_near(guided(own, null, strength, rescale), reference.expected["ar_cfg_logits"])


@pytest.mark.parametrize(
    ("sums", "language", "levels", "name"),
    [
        ("inclusive", True, range(1, 8), "nar_logits"),
        ("exclusive", True, (2, 3, 7), "nar_logits_exclusive_l2_l3_l7"),
        ("exclusive", False, (1, 2, 7), "nar_logits_era2024_l1_l2_l7"),
    ],
)
def test_nar_logits_are_those_of_the_reference(
    reference: Reference, sums: CodeSums, language: bool, levels: Sequence[int], name: str
) -> None:
    found = nar_rows(reference, reference.load(sums, language), levels)
    assert_near(found, reference.expected[name])


def test_guided_nar_logits_are_those_of_the_reference(reference: Reference) -> None:
    model, inputs = reference.load(), reference.inputs
    level = inputs["nar_cfg_level"]
    own = nar_rows(reference, model, [level])[0]
    null = model.nar_logits(reference.null(model, level), reference.codes, level)
    assert_near(null, reference.expected["nar_null_logits"])
    strength, rescale = inputs["cfg_strength"], inputs["cfg_rescale"]
    assert_near(guided(own, null, strength, rescale), reference.expected["nar_cfg_logits"])


@pytest.mark.parametrize(
    ("sums", "language", "start", "name"),
    [
        ("inclusive", True, "ar_greedy", "nar_greedy_codes"),
        ("exclusive", True, "ar_greedy", "nar_greedy_codes_exclusive"),
        ("exclusive", False, "ar_greedy_nolang", "nar_greedy_codes_era2024"),
    ],
)
def test_greedy_codes_of_all_levels(
    reference: Reference, sums: CodeSums, language: bool, start: str, name: str
) -> None:
    model = reference.load(sums, language)
    found = nar_greedy(reference, model, reference.expected[start])
    assert torch.equal(found, reference.expected[name])


def test_masked_logits_are_those_of_the_reference(masked: Reference) -> None:
    model, expected = masked.load(), masked.expected
    own = model.masked_logits(masked.prefix(model, 0), expected["masked_input"])
    null = model.masked_logits(masked.null(model, 0), expected["masked_input"])
    assert_near(own, expected["masked_logits"])
    assert_near(null, expected["masked_null_logits"])
    assert_near(guided(own, null, 2.5, 0.75), expected["masked_cfg_logits"])


def test_the_first_digit_of_the_length(masked: Reference) -> None:
    model = masked.load()
    found = model.length_logits(masked.prefix(model, 0), torch.tensor([0]))
    assert_near(found[None], masked.expected["len_first_logits"])
