"""A model in fewer bits is the same model, and its rotations and logits keep theirs."""

import copy

import pytest
import torch
from torch import Tensor, nn

from models.config import ModelConfig
from models.placement import WeightOffloader, prepare_for
from models.stack.cache import KVCache
from models.valle import Valle
from tests.models.test_valle import IDS, random_model, some_codes

CPU = torch.device("cpu")
FRAMES = 20
# bfloat16 keeps 8 bits; the products of these layers sum some tens of such roundings.
COARSE = 0.04


def codes(frames: int = FRAMES) -> Tensor:
    return some_codes(frames)


def ar_logits(model: Valle) -> Tensor:
    """Return ``[FRAMES, V + 1]`` of steps over a cache in the model's own numbers."""
    prefix = model.prefix(IDS, 0, prompt=codes(9))
    dtype = model.separator.dtype
    cache = KVCache(model.config, 2, len(prefix) + FRAMES, dtype=dtype)
    hidden = [model.read(prefix, cache, 1)[0][-1:]]
    for frame, code in enumerate(codes()[:-1, :1]):
        x = model.embed_response(code[None], 0)
        hidden.append(model.transformer.step(x, torch.tensor([frame]), cache, [1])[0])
    return model.logits(torch.cat(hidden), 0)


def nar_logits(model: Valle) -> Tensor:
    return model.nar_logits(model.prefix(IDS, 3, prompt=codes(9)), codes(), 3)


def masked_logits(model: Valle) -> Tensor:
    return model.masked_logits(model.prefix(IDS, 0), codes()[:, 0])


def length_logits(model: Valle) -> Tensor:
    return model.length_logits(model.prefix(IDS, 0), torch.tensor([0, 3]))


PASSES = [ar_logits, nar_logits, masked_logits, length_logits]


@pytest.fixture(scope="module")
def model() -> Valle:
    config = ModelConfig(
        width=32, layers=2, heads=4, kv_heads=2, ffn=48, codes=64, phonemes=tuple("abcdef"),
        masked_level_0=True,
    )  # fmt: skip
    return random_model(config)


@pytest.fixture(scope="module")
def narrow(model: Valle) -> Valle:
    return prepare_for(CPU, copy.deepcopy(model), torch.bfloat16)


@torch.inference_mode()
@pytest.mark.parametrize("run", PASSES)
def test_every_pass_in_bfloat16_is_that_of_float32_up_to_its_rounding(
    model: Valle, narrow: Valle, run
) -> None:
    expected, found = run(model), run(narrow)
    assert found.dtype == torch.float32
    assert 0 < (found - expected).norm() / expected.norm() < COARSE


def test_weights_are_in_the_numbers_asked_for_and_rotations_in_their_own(narrow: Valle) -> None:
    heads = {one for head in narrow.output_heads for one in head.parameters()}
    assert {one.dtype for one in heads} == {torch.float32}
    assert {one.dtype for one in {*narrow.parameters()} - heads} == {torch.bfloat16}
    stack = narrow.transformer
    assert (stack.cos.dtype, stack.rotations.dtype) == (torch.float32, torch.complex64)


@torch.inference_mode()
def test_on_a_cpu_nothing_changes_unless_it_is_asked_for(model: Valle) -> None:
    laid_out = copy.deepcopy(model)
    laid_out.lay_out_for_steps()
    placed = prepare_for(CPU, copy.deepcopy(laid_out))
    for old, new in zip(laid_out.parameters(), placed.parameters(), strict=True):
        assert torch.equal(old, new)
        assert old.stride() == new.stride()
        assert old.dtype == new.dtype


@torch.inference_mode()
def test_logits_of_a_model_in_bfloat16_are_not_rounded_to_it(narrow: Valle) -> None:
    logits = narrow.logits(torch.randn(3, narrow.config.width, dtype=torch.bfloat16), 0)
    assert (logits != logits.bfloat16().float()).any(-1).all()


def test_weights_leave_only_where_nobody_needs_them():
    module = nn.Linear(2, 2)
    offloader = WeightOffloader([module], CPU, torch.device("meta"))
    offloader.offload(lambda: False)
    assert offloader.at_home
    assert module.weight.device == CPU
    offloader.offload(lambda: True)
    assert not offloader.at_home
    assert module.weight.device == torch.device("meta")


def test_weights_that_are_brought_back_are_what_they_were():
    module = nn.Linear(2, 2)
    before = module.weight.clone()
    offloader = WeightOffloader([module], CPU, CPU)
    offloader.load()
    offloader.offload(lambda: True)
    offloader.load()
    assert offloader.at_home
    assert torch.equal(module.weight, before)
