"""The stack without a cache: masks hide what they must, gradients change nothing."""

from functools import partial

import pytest
import torch

from models.config import BlockSpec
from models.stack.transformer import PADDING_RANK, Transformer
from tests.models.stack.stacks import make_stack, uncached, vectors

pytestmark = pytest.mark.usefixtures("without_gradients")
ALL = {*range(6)}
assert_close = partial(torch.testing.assert_close, rtol=0)


PLAIN = {"activation": "relu", "block": BlockSpec(bias=True, ffn="plain", positions="added")}


@pytest.fixture(scope="module", params=[{}, {"activation": "silu"}, PLAIN], ids=str)
def stack(request: pytest.FixtureRequest) -> Transformer:
    return make_stack(**request.param)


@pytest.mark.parametrize(
    ("ranks", "seen"),
    [
        ([0, 1, 2, 3, 4, 5], {0: {0}, 3: {0, 1, 2, 3}, 5: ALL}),
        ([0, 0, 1, 1, 2, 2], {0: {0, 1}, 2: {0, 1, 2, 3}, 5: ALL}),
        ([0] * 6, {0: ALL, 5: ALL}),
    ],
    ids=["causal", "block_causal", "full"],
)
def test_ranks_decide_who_sees_whom(stack, ranks, seen) -> None:
    x = vectors(6)
    before = uncached(stack, x, torch.tensor(ranks))
    for changed in range(6):
        moved = x.clone()
        moved[changed] += 1
        differs = (uncached(stack, moved, torch.tensor(ranks)) - before).abs().amax(1) > 1e-6
        for position, visible in seen.items():
            assert bool(differs[position]) == (changed in visible)


def test_padding_changes_nothing_and_rotary_positions_are_relative(stack) -> None:
    x, ranks = vectors(20), torch.arange(20)
    expected = uncached(stack, x)
    assert_close(uncached(stack, x, ranks), expected, atol=1e-6)
    padded = torch.cat([x, vectors(5, seed=3)])[None]
    padded_ranks = torch.cat([ranks, torch.full((5,), PADDING_RANK)])[None]
    assert_close(stack(padded, torch.arange(25)[None], padded_ranks)[0, :20], expected, atol=1e-5)
    if stack.entry is None:
        assert_close(stack(x[None], torch.arange(500, 520)[None])[0], expected, atol=1e-3)


@pytest.mark.parametrize("size", [0, 1e-4, 1, 1e4])
def test_the_faster_forms_without_gradients_give_the_same(stack, size) -> None:
    with torch.inference_mode(False):
        expected = uncached(stack, vectors(7) * size)
    assert_close(uncached(stack, vectors(7) * size), expected, atol=1e-5 * max(size, 1))
