"""Batches of utterances on a toy, and what each of them has alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.runner import ArRunner
from app.engine.utterance import UtteranceInput
from models.int8.cache import Int8Cache
from models.int8.quantized import is_quantized
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, SlotPrefix, one_by_one
from models.stack.cache import KVCache
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.ops.guidance import guide

ROOM = 250
EAGER = {"backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2}
GUIDED: dict[str, Any] = {"cfg_strength": 1.5}
ENDING: dict[str, Any] = {"logit_bias": {512: 4.0}}
# Every code is in the state HELV, where only branches change anything.
BRANCH: dict[str, Any] = {
    "entropix": True,
    "entropix_action": "branch",
    "entropix_low_entropy": 0.0,
    "entropix_helv_entropy": 0.0,
    "entropix_low_varentropy": 1e3,
    "entropix_branch_rollouts": 3,
    "entropix_branch_frames": 4,
    "entropix_branch_interval": 7,
}


def traced(seed: int = 1, max_frames: int = 30, **knobs: Any) -> UtteranceInput:
    params = SamplingParams().model_copy(update=knobs)  # wider than a request may ask for
    ids = [1, *range(10, 12 + seed % 5), 2]
    return UtteranceInput(ids, params, seed, 0, max_frames, trace=True)


def batch_of(model: Valle, slots: int = 30) -> ArRunner:
    return ArRunner(model, PrefixCache(model), slots=slots, max_length=ROOM)


def spoil(batch: ArRunner, slot: int) -> None:
    """Leave no numbers in what a slot of the first layer holds."""
    cache = batch._feed.cache
    if isinstance(cache, Int8Cache):
        cache.layers[0].key_scales[slot] = cache.layers[0].value_scales[slot] = np.nan
    elif isinstance(cache, KVCache):
        cache.keys[0][slot] = cache.values[0][slot] = torch.nan


def finish(batch: ArRunner) -> None:
    while batch.running:
        batch.step()


def alone(model: Valle, one: UtteranceInput) -> HypothesisGroup:
    batch = ArRunner.alone(model, PrefixCache(model), one)
    utterance = batch.admit(one)
    finish(batch)
    return utterance


def assert_as_alone(model: Valle, utterance: HypothesisGroup, *, whole: bool = True) -> None:
    """Assert that codes, trace and backtracks are those of the same utterance drawn alone."""
    expected = alone(model, utterance.inputs)
    count = len(utterance)
    if whole:
        assert utterance.finish_reason == expected.finish_reason
        assert utterance.backtracks == expected.backtracks
        assert count == len(expected)
    found, wanted = utterance.trace, expected.trace
    assert found is not None
    assert wanted is not None
    tokens = len(found["code"])
    assert tokens == len(wanted["code"]) or not whole
    for name, column in found.items():
        np.testing.assert_array_equal(column, wanted[name][:tokens], name)
    if whole:
        assert torch.equal(utterance.codes(), expected.codes())


def assert_read_its_own(model: Valle, utterance: HypothesisGroup) -> None:
    """Assert that each kept code was drawn from what the model says of the codes before it."""
    codes, trace = utterance.codes().tolist(), utterance.trace
    assert trace is not None
    assert trace["code"].tolist() == codes
    own, guided = logits_after(model, utterance.inputs, codes)
    np.testing.assert_allclose(trace["logprob"], logprobs_of(own, codes), atol=2e-4)
    np.testing.assert_allclose(trace["guided_logprob"], logprobs_of(guided, codes), atol=2e-4)


def logits_after(
    model: Valle, inputs: UtteranceInput, codes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The model's logits ``(T + 1, V)`` before every code and behind the last.

    Its own, and with guidance applied. Float weights: without a cache; int8 rounds what the cache
    keeps, so those use one.
    """
    given = torch.tensor(codes, dtype=torch.int64)
    read = _step_by_step if is_quantized(model) else Valle.ar_logits
    with torch.inference_mode():
        own, *null = [read(model, prefix, given[:, None]) for prefix in inputs.ar_prefixes(model)]
        if not null:
            return own, own
        knobs = [
            own.new_full((len(own),), knob)
            for knob in (inputs.params.cfg_strength, inputs.params.cfg_rescale)
        ]
        return own, guide(own[:, None], null[0][:, None], *knobs)[:, 0]


def _step_by_step(model: Valle, prefix: Prefix, codes: Tensor) -> Tensor:
    cache = model.new_cache(1, len(prefix) + len(codes))
    wanted = [SlotPrefix(prefix, 0, None)]
    ((whole, _),) = PrefixCache(model).read(wanted, cache, one_by_one(model))
    hidden = [whole[-1:]]
    for frame, embedding in enumerate(model.embed_response(codes, 0)):
        position = torch.tensor([prefix.response_start + frame])
        hidden.append(model.transformer.step(embedding[None], position, cache, [0]))
    return model.logits(torch.cat(hidden), 0)


def logprobs_of(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """The log-probability of each token under its row of logits."""
    index = torch.tensor(tokens)[:, None]
    return logits[: len(tokens)].log_softmax(-1).gather(1, index)[:, 0]
