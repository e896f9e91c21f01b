"""The folded stack against what the reference code computes with the same random weights.

Logits are within 2e-5, a fifth of the data's own bound; codes are equal.
"""

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from app.engine.ar.stage import ArBatch
from app.engine.utterance import UtteranceSpec
from models.checkpoints.vallex.load import load_vallex
from models.int8.quantized import quantize_linears
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.alone_among.harness import alone_equals_among
from tests.app.engine.ar.requests import ArRequests
from tests.models.checkpoints.vallex.golden import Case, Golden, placed, stepped
from tests.models.stack.stacks import CPU

TOLERANCE = 2e-5
MOST_NATS = 0.01

pytestmark = pytest.mark.usefixtures("without_gradients")


def forced(reference: Golden) -> list[Case]:
    return [case for case in reference.cases if len(case.codes)]


@pytest.mark.parametrize("cached", [False, True], ids=["at once", "by steps"])
def test_level_0_has_the_logits_of_the_reference(reference: Golden, cached: bool) -> None:
    model = reference.model
    for case in forced(reference):
        prefix = case.prefix(model, 0)
        if cached:
            found = stepped(model, prefix, case.codes[:, 0].tolist())
        else:
            found = model.ar_logits(prefix, case.codes)
        assert (found - reference.of(case, "ar_logits")).abs().max() < TOLERANCE, case.name


def test_the_first_and_the_last_finer_level_have_the_logits_of_the_reference(
    reference: Golden,
) -> None:
    model = reference.model
    for case in forced(reference):
        codes = case.codes if case.name else reference.of(case, "codes_out").long()
        for level, expected in zip(
            (1, 7), reference.of(case, "nar_logits_stages_1_7"), strict=True
        ):
            logits = model.nar_logits(case.prefix(model, level), codes[:, :level], level)
            assert (logits[:12] - expected).abs().max() < TOLERANCE, (case.name, level)


def sampled(model: Valle, inputs: UtteranceSpec, pool: PagePool | None = None) -> Tensor:
    """Return the codes of level 0 that a runner samples."""
    runner = ArBatch.single(model, PrefixCache(model), inputs, pool)
    group = runner.admit(inputs)
    while group.finish_reason is None:
        runner.step()
    return group.ar_codes()


@pytest.mark.parametrize("paged", [False, True], ids=["slots", "pages"])
def test_greedy_codes_of_the_service_are_those_of_the_reference(
    reference: Golden, paged: bool
) -> None:
    model = reference.model
    params = resolve(SamplingParams(temperature=0.0))
    lifeiteng = "cases" not in reference.inputs
    # Recordings are made anew for each: of pages some cases are enough.
    for case in reference.cases[:: 4 if paged else 1]:
        # Their prompts' texts are told by their first marks alone: all of it is one text here.
        said, ids = ([], case.ids) if lifeiteng else (case.said, case.ids)
        limit = min(16 * len([*said, *ids]) + lifeiteng, 10**4 if lifeiteng else 60)
        inputs = UtteranceSpec(ids, params, 0, 0, limit, prompt=case.prompt, said=said)
        pool = PagePool(model.config, 99, dtype=torch.float32, device=CPU) if paged else None
        codes = sampled(model, inputs, pool)[:, None]
        for level in range(1, 8):
            logits = model.nar_logits(case.prefix(model, level), codes, level)
            codes = torch.cat([codes, logits.argmax(-1)[:, None]], 1)
        expected = reference.of(case, "codes_out" if lifeiteng else "nar_codes").long()
        assert torch.equal(codes, expected), case.name


def test_a_text_drawn_among_others_has_the_codes_that_it_has_alone(reference: Golden) -> None:
    model, cases = reference.model, reference.cases[:5]
    params = resolve(SamplingParams(temperature=0.9, top_p=0.9))
    inputs = [
        UtteranceSpec(case.ids, params, 7, 0, 24, prompt=case.prompt, said=case.said)
        for case in [*cases, *cases]
    ]
    batch = ArBatch(model, PrefixCache(model), slots=len(inputs), max_length=400)
    alone_equals_among(ArRequests(batch), inputs)


def moved_nats(expected: Tensor, found: Tensor, codes: Tensor) -> Tensor:
    """Return ``[T]``, by how many nats each of some codes is less likely."""
    moved = expected.log_softmax(-1) - found.log_softmax(-1)
    return moved[torch.arange(len(codes)), codes]


def test_int8_costs_less_than_a_hundredth_of_a_nat(golden_vallex: Path, tmp_path: Path) -> None:
    reference = Golden(golden_vallex, "model", tmp_path)
    model = load_vallex(placed(golden_vallex, "model", tmp_path))
    quantize_linears(model)
    shared = [cast("Any", one.blocks[0].attention.qkv).tiles for one in model.nar_stacks]
    assert all(one is shared[0] for one in shared)  # seven levels, one matrix
    ar, level_7 = list[Tensor](), list[Tensor]()
    for case in forced(reference):
        codes = case.codes
        sampled, also_sampled = (
            stepped(one, case.prefix(one, 0), codes[:, 0].tolist())
            for one in (reference.model, model)
        )
        ar.append(moved_nats(sampled, also_sampled, codes[:, 0]))
        nar, also_nar = (
            one.nar_logits(case.prefix(one, 7), codes, 7) for one in (reference.model, model)
        )
        level_7.append(moved_nats(nar, also_nar, codes[:, 7]))
    for moved in (ar, level_7):
        assert abs(torch.cat(moved).mean()) < MOST_NATS
