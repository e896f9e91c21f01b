"""Guidance in one row: what a model predicts of the null condition is drawn from everywhere alike.

Of the requests of the table that are guided, none of which rescales here, those of a strength up to
1.5 take one row, others two. What is replayed comes from a tape, which spoils the temporaries.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from app.engine.ar.graph_runner import GraphRunner
from app.engine.ar.stage import ArBatch
from app.engine.results import UtteranceResult
from app.engine.utterance import UtteranceSpec
from gpu.graphs import eager
from models.config import NullHeadConfig
from models.null_head import NullHead
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.ar.state import PREDICTED
from samplers.knobs.features import is_guided
from samplers.knobs.params import SamplingParams
from tests.alone_among.harness import Schedule, alone_equals_among
from tests.app.engine.ar.growing_texts import NUMBERS, versions
from tests.app.engine.ar.requests import (
    KINDS,
    ArRequests,
    alone,
    assert_read_its_own,
    finish,
    runner,
)
from tests.app.engine.ar.requests import (
    request as any_request,
)
from tests.capture.tape import Tape
from tests.samplers.ar.rows import EVERY, STUCK

SPEC = NullHeadConfig(layers=(0,), hidden=24, rank=4, max_strength=1.5)
ONE_ROW = [number for number, one in enumerate(EVERY) if 1 < one.cfg_strength <= 1.5]
TWO_ROWS = [number for number, one in enumerate(EVERY) if one.cfg_strength > 1.5]
UNGUIDED = [0, 2, 9, 17, 18]
READ = ("code", "attempt", "frame")  # of a trace; its logits differ by rounding
WHOLE: dict[str, Any] = {"trace": False, "kept": None, "context": ()}
GUIDED = {"cfg_strength": 1.5, "cfg_rescale": 0.0}
TWICE = {"cfg_strength": 2.0, "cfg_rescale": 0.0}


@pytest.fixture(scope="module")
def float_model(float_model: Valle) -> Valle:
    """The toy with a null head; `model` of conftest.py is made of it."""
    model = deepcopy(float_model)
    model.config = model.config.model_copy(update={"null_head": SPEC})
    torch.manual_seed(0)
    model.null_head = NullHead(model.config.width, model.config.codes + 1, SPEC)
    for parameter in model.null_head.requires_grad_(requires_grad=False).parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def request(model: Valle, number: int, **changes: Any) -> UtteranceSpec:
    """Return a request of the table that rescales nothing."""
    one = any_request(model, number, **changes)
    return replace(one, params=one.params.model_copy(update={"cfg_rescale": 0.0}))


def rows_of(model: Valle, one: UtteranceSpec) -> int:
    """How many rows a request takes while it is sampled."""
    batch = runner(model, slots=20)
    batch.admit(one)
    return 20 - batch.free_rows


@pytest.mark.parametrize(
    ("knobs", "rows"),
    [
        ({"cfg_strength": 1.0}, 1),
        ({"cfg_strength": 1.5}, 1),
        ({"cfg_strength": 1.51}, 2),
        ({"cfg_strength": 1.5, "cfg_rescale": 0.1}, 2),
        ({"cfg_strength": 1.5, "backtrack": True}, 1),
        ({"cfg_strength": 1.5, "best_of": 3}, 3),
        ({"cfg_strength": 1.6, "best_of": 3}, 6),
        ({"cfg_strength": 1.5, "beam_width": 2}, 2),
        ({"cfg_strength": 1.5, "entropix": True, "entropix_action": "branch"}, 4),
    ],
)
@pytest.mark.parametrize("trace", [False, True])
def test_how_many_rows_a_request_takes_depends_on_its_knobs_alone(
    model: Valle, knobs: dict[str, Any], rows: int, trace: bool
) -> None:
    params = SamplingParams(seed=0, entropix_branch_rollouts=4, **{"cfg_rescale": 0.0} | knobs)
    one = any_request(model, 0, **WHOLE | {"trace": trace, "params": params})
    assert rows_of(model, one) == rows


def test_the_partner_is_predicted_or_a_row_of_its_own(model: Valle) -> None:
    batch = runner(model)
    for number in (*ONE_ROW, *TWO_ROWS):
        group = batch.admit(request(model, number))
        for one in group.sequences:
            assert (one.partner == PREDICTED) is (number in ONE_ROW)
            assert len(one.conditions) == 1 + (number in TWO_ROWS)
        batch.cancel(group)


@pytest.mark.parametrize("number", [*ONE_ROW, *TWO_ROWS])
def test_a_code_was_drawn_from_the_model_and_what_it_predicts(model: Valle, number: int) -> None:
    assert_read_its_own(model, alone(model, request(model, number, trace=True)))


@pytest.mark.parametrize("number", ONE_ROW)
def test_a_trace_changes_no_code(model: Valle, number: int) -> None:
    traced, other = (
        alone(model, request(model, number, trace=trace)).ar_codes() for trace in (True, False)
    )
    assert traced.tolist() == other.tolist()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_beside_rows_of_other_kinds_each_is_drawn_as_alone(model: Valle, seed: int) -> None:
    numbers = [seed * KINDS + number for number in (*ONE_ROW, *TWO_ROWS, *UNGUIDED)]
    stage = ArRequests(runner(model, slots=12))
    alone_equals_among(stage, [request(model, number) for number in numbers], Schedule(seed))


@pytest.mark.parametrize("knobs", [GUIDED, {"cfg_strength": 1.3, "top_p": 0.9}, GUIDED | STUCK])
def test_plain_rows_sample_the_codes_that_the_operators_do(
    model: Valle, knobs: dict[str, Any]
) -> None:
    params = SamplingParams(seed=0, **knobs)
    for number in range(4):
        plain, traced = (
            alone(model, request(model, number, params=params, **WHOLE | {"trace": trace}))
            for trace in (False, True)
        )
        assert plain.ar_codes().tolist() == traced.ar_codes().tolist()
        assert plain.backtracks == traced.backtracks


def test_words_that_are_drawn_anew_without_guidance_are_drawn_without_it(model: Valle) -> None:
    params = SamplingParams(seed=0, **GUIDED, backtrack=True, backtrack_repeat_frames=2)
    params = params.model_copy(update=STUCK)
    found = [alone(model, request(model, n, params=params, **WHOLE | {"trace": True}))
             for n in range(6)]  # fmt: skip
    assert sum(len(group.backtracks) for group in found) > 2
    for group in found:
        assert_read_its_own(model, group)


@pytest.mark.slow
@pytest.mark.usefixtures("sorted_as_on_a_gpu")
@pytest.mark.parametrize("stride", [1, 5])
@pytest.mark.parametrize("captured", [False, True], ids=["called", "played"])
def test_over_pages_requests_are_drawn_as_over_slots(
    float_model: Valle, captured: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphRunner, "stride", stride)
    numbers = [*ONE_ROW, *TWO_ROWS, *UNGUIDED]
    inputs = [request(float_model, number) for number in numbers]
    inputs += [
        request(float_model, number, params=SamplingParams(seed=0, **knobs), **WHOLE)
        for number in range(5)
        for knobs in (GUIDED, GUIDED | STUCK, TWICE)
    ]
    batch = runner(float_model, Tape().capture if captured else eager, 8)
    found = alone_equals_among(over_slots(batch), inputs, Schedule(1))
    assert sum(len(backtracks) for _, _, backtracks, *_ in found) > 2


def over_slots(batch: ArBatch) -> ArRequests:
    """A batch of which each request is compared with one over slots."""
    return ArRequests(batch, lambda: runner(batch._runner.model, None, 12), READ)


def growing(model: Valle) -> Sequence[Sequence[UtteranceSpec]]:
    """Texts that grow, of requests that are guided."""
    found = []
    for number in NUMBERS:
        texts = versions(model, number)
        if is_guided(texts[0].params):
            params = texts[0].params.model_copy(update={"cfg_rescale": 0.0})
            found.append([replace(one, params=params) for one in texts])
    return found


def test_a_growing_text_is_drawn_in_one_row_as_alone(model: Valle) -> None:
    texts = growing(model)
    found = alone_equals_among(ArRequests(runner(model, slots=len(texts))), texts)
    assert sum(len(growths) for *_, growths in found) > 4


@pytest.mark.usefixtures("sorted_as_on_a_gpu")
def test_over_pages_a_growing_text_is_drawn_as_over_slots(float_model: Valle) -> None:
    batch = runner(float_model, eager, 30, pages=250)
    alone_equals_among(over_slots(batch), growing(float_model))


def test_a_take_is_gone_on_from_as_it_went_on(model: Valle) -> None:
    params = SamplingParams(seed=0, **GUIDED)
    one = request(model, 1, params=params, **WHOLE | {"max_frames": 30})
    codes = alone(model, one).ar_codes().tolist()
    take = UtteranceResult(torch.tensor(codes)[:, None].numpy().astype("int16"), "stop")
    for frames in (1, len(codes) // 2, len(codes) - 1):
        found = alone(model, replace(one, kept=take.kept(frames)))
        assert found.ar_codes().tolist() == codes


def test_what_is_no_number_in_what_is_predicted_ends_its_utterance_alone(
    float_model: Valle,
) -> None:
    broken = deepcopy(float_model)
    assert isinstance(broken.null_head, NullHead)
    broken.null_head.wide.bias[3] = torch.nan
    batch = ArBatch(broken, PrefixCache(broken), slots=3, max_length=250)
    params = SamplingParams(seed=0)
    guided = params.model_copy(update=GUIDED)
    groups = [batch.admit(request(broken, n, params=one, **WHOLE | {"max_frames": 9}))
              for n, one in enumerate((params, guided))]  # fmt: skip
    finish(batch)
    assert [group.finish_reason == "error" for group in groups] == [False, True]
