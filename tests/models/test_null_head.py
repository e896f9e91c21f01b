"""The null condition's logits, predicted from the conditional row, in floats and in integers."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from models.config import ModelConfig, NullHeadConfig
from models.int8.null_head import Int8NullHead
from models.int8.quantized import quantize_linears
from models.null_head import NullHead
from models.stack.batching import ROW_COUNTS
from models.stack.taps import Taps
from models.valle import Valle

SPEC = NullHeadConfig(layers=(0, 2), hidden=64, rank=6, max_strength=2.5)
CONFIG = ModelConfig(
    width=32, layers=3, heads=4, kv_heads=2, ffn=48, codes=100, levels=2, phonemes=("a",),
    has_null_condition=True, null_head=SPEC,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("without_gradients")


def states(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, 3 * CONFIG.width, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def floats() -> Valle:
    torch.manual_seed(0)
    model = Valle(CONFIG).eval().requires_grad_(False)
    assert isinstance(model.null_head, NullHead)
    for parameter in model.null_head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(floats: Valle, request: pytest.FixtureRequest) -> Valle:
    model = deepcopy(floats)
    if request.param == "int8":
        quantize_linears(model)
        assert isinstance(model.null_head, Int8NullHead)
    return model


def test_at_first_the_null_condition_is_what_the_conditional_one_is() -> None:
    found = NullHead(CONFIG.width, 101, SPEC)(states(5))
    assert torch.equal(found, torch.zeros(5, CONFIG.width + 101))


def test_the_logits_are_those_of_the_corrected_state_and_a_difference(floats: Valle) -> None:
    given, head = states(5), floats.null_head
    assert isinstance(head, NullHead)
    correction, difference = head(given).split([CONFIG.width, 101], 1)
    hidden = given[:, : CONFIG.width]
    found = floats.logits_with_null(given, [3, 1])
    torch.testing.assert_close(found[:5], floats.logits(hidden, 0))
    expected = floats.heads[0](hidden + correction) + difference
    torch.testing.assert_close(found[5:], expected[[3, 1]])
    assert (found[5:] - found[[3, 1]]).abs().max() > 0.1


def test_in_integers_the_logits_are_nearly_the_same(floats: Valle) -> None:
    quantized = deepcopy(floats)
    quantize_linears(quantized)
    rows = [0, 5, 8]
    for given in (states(9), 100 * states(9, 1) + 50, 1e-4 * states(9, 2)):
        expected, found = (one.logits_with_null(given, rows) for one in (floats, quantized))
        assert (found - expected).norm() < 0.02 * expected.norm()
        assert torch.equal(found[:9], quantized.logits(given[:, : CONFIG.width], 0))
    given = states(9)
    expected, found = (
        one.logits_with_null(given, rows)[9:] - one.logits(given[rows, : CONFIG.width], 0)
        for one in (floats, quantized)
    )
    assert (found - expected).norm() < 0.05 * expected.norm()


def test_a_row_has_the_same_bits_in_every_batch(model: Valle) -> None:
    whole = states(ROW_COUNTS[-1])
    expected = model.logits_with_null(whole, slice(None))
    for count in ROW_COUNTS:
        found = model.logits_with_null(whole[:count], slice(None))
        assert torch.equal(found[:count], expected[:count])
        assert torch.equal(found[count:], expected[len(whole) :][:count])


def test_what_is_no_number_stays_in_its_row(model: Valle) -> None:
    given = states(3)
    expected = model.logits_with_null(given, slice(None))
    given[1, 2 * CONFIG.width] = torch.nan
    found = model.logits_with_null(given, slice(None))
    assert found.isnan().any(1).tolist() == [False, False, False, False, True, False]
    assert torch.equal(found[[0, 2, 3, 5]], expected[[0, 2, 3, 5]])


def test_a_pass_tells_what_the_head_reads(model: Valle) -> None:
    assert model.null_taps == Taps(outputs=(0, 2))
    prefix = model.prefix([1, 3, 3, 2], 0)
    hidden, _ = model.read(prefix, model.new_cache(1, 20), 0, model.null_taps)
    plain, _ = model.read(prefix, model.new_cache(1, 20), 0)
    assert torch.equal(hidden[:, : CONFIG.width], plain)
    last = model.transformer.norm(hidden[:, 2 * CONFIG.width :])
    torch.testing.assert_close(last, plain, atol=1e-5, rtol=1e-5)


def test_heads_stay_float32_on_a_device_that_computes_in_less() -> None:
    from models.placement import prepare_for

    narrow = prepare_for(torch.device("cpu"), Valle(CONFIG), torch.bfloat16)
    assert narrow.null_head is not None
    assert {one.dtype for one in narrow.null_head.parameters()} == {torch.float32}
    found = narrow.logits_with_null(states(3).bfloat16(), [0])
    assert (found.shape, found.dtype) == ((4, 101), torch.float32)
