"""The table of requests, what samples them on a toy, and what each of them has alone."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.stage import ArBatch
from app.engine.utterance import ContextUtterance, UtteranceSpec, ar_codes_of
from gpu.graphs import Capture
from models.int8.quantized import is_quantized
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, SlotPrefix, VoiceKey, one_by_one
from models.stack.paged_cache import PagePool
from models.valle import Valle
from samplers.knobs.features import is_guided, rows_needed
from samplers.knobs.params import SamplingParams
from samplers.ops.guidance import guide
from tests.app.engine.decoding import spoken
from tests.samplers.ar.rows import EVERY, spoil

ROOM, PAGES = 250, 60
KINDS = len(EVERY)


def request(model: Valle, number: int, **changes: Any) -> UtteranceSpec:
    """Return a request with the knobs of that number.

    Some are traced, go on from an earlier take, or follow another utterance.
    """
    sample, config = random.Random(number), model.config
    params = EVERY[number % KINDS].model_copy(update={"seed": number})
    shares = number % 5 == 4  # a whole page of its prompt with others
    prompt = torch.randint(
        config.codes, (70 if shares else sample.randint(2, 9), config.levels),
        generator=torch.Generator().manual_seed(0 if shares else number),
    )  # fmt: skip
    reads_prompt = params.prompt_as_prefix or params.penalty_includes_prompt
    given: dict[str, Any] = {
        "max_frames": sample.randint(5, 60), "silent": range(number % 8, config.codes, 8),
        "prompt": prompt if number % 6 or reads_prompt else None, "trace": number % 7 == 3,
        "voice": VoiceKey(None, "a voice", 0) if shares and number % 6 else None,
    }  # fmt: skip
    if number % 11 == 6 and not params.beam_width and number % 6:  # goes on from an earlier take
        given["kept"] = spoken(prompt[:2])
    if number % 9 == 8:
        given["context"] = (ContextUtterance([1, 11, 12, 13, 2], prompt[:2, 0]),)
    ids = [1, *(sample.randint(10, 20) for _ in range(sample.randint(1, 12))), 2]
    return replace(UtteranceSpec(ids, params, number, number % 3, **given), **changes)


def traced(seed: int = 1, max_frames: int = 30, **knobs: Any) -> UtteranceSpec:
    params = SamplingParams().model_copy(update=knobs)  # wider than a request may ask for
    ids = [1, *range(10, 12 + seed % 5), 2]
    return UtteranceSpec(ids, params, seed, 0, max_frames, trace=True)


def runner(
    model: Valle,
    capture: Capture | None = None,
    slots: int = 30,
    pages: int = PAGES,
    dtype: torch.dtype = torch.float32,
) -> ArBatch:
    """Return a runner over pages, over slots if nothing records, whose rows others have had."""
    if capture is None:
        made = ArBatch(model, PrefixCache(model), slots=slots, max_length=ROOM)
    else:
        pool = PagePool(model.config, pages, dtype=dtype, device=torch.device("cpu"))
        prefixes = PrefixCache(model, new_cache=pool.new_cache)
        made = ArBatch(model, prefixes, slots=slots, max_length=ROOM, pool=pool, capture=capture)
    spoil(made._runner.table)
    return made


def finish(batch: ArBatch, *groups: SequenceOrGroup) -> None:
    """Step until some utterances have ended, or all."""
    while any(group.finish_reason is None for group in groups or batch.running):
        batch.step()


def alone(model: Valle, one: UtteranceSpec) -> SequenceOrGroup:
    batch = ArBatch.single(model, PrefixCache(model), one)
    group = batch.admit(one)
    finish(batch)
    return group


ArRequest = UtteranceSpec | Sequence[UtteranceSpec]
Outcome = tuple[Any, ...]


def outcome(group: SequenceOrGroup, columns: Sequence[str] = ()) -> Outcome:
    """What came of a request; of its trace the named columns, or all."""
    trace = group.trace or {}
    read = {name: trace[name].tobytes() for name in (columns or trace) if trace}
    memory = None if group.memory is None else group.memory.last_act.tolist()
    return (
        group.ar_codes().tolist(), group.finish_reason, group.backtracks,
        [(take.frames, take.finish_reason, take.kept) for take in group.ranked], read, memory,
        list(getattr(group, "growths", ())),
    )  # fmt: skip


@dataclass
class ArRequests:
    """Level 0 of requests in one batch; a stage of `tests.alone_among`.

    A request is an utterance, or the versions of one whose text grows.

    Args:
        alone_in: What makes the batch that a request is alone in; `ArBatch.single` without.
        columns: What of a trace is compared; all without.
    """

    batch: ArBatch
    alone_in: Callable[[], ArBatch] | None = None
    columns: Sequence[str] = ()
    final: dict[SequenceOrGroup, list[int]] = field(default_factory=dict)

    def has_room(self, request: ArRequest) -> bool:
        strength = self.batch._runner.model.config.one_row_strength
        params = versions_of(request)[0].params
        return self.batch.free_rows >= rows_needed(params, strength)

    def begin(self, request: ArRequest) -> SequenceOrGroup:
        return admit(self.batch, request)

    def step(self, running: Sequence[SequenceOrGroup]) -> None:
        """Sample a frame of each, or as many as a burst has; what was final stays what it was."""
        self.batch.step(running)
        for group in running:
            before = self.final.get(group, [])
            self.final[group] = group.ar_codes(0, group.final).tolist()
            assert self.final[group][: len(before)] == before

    def is_over(self, running: SequenceOrGroup) -> bool:
        return running.finish_reason is not None

    def leave(self, running: SequenceOrGroup) -> None:
        self.batch.cancel(running)

    def outcome(self, running: SequenceOrGroup) -> Outcome:
        return outcome(running, self.columns)

    def error(self, running: SequenceOrGroup) -> Exception | None:
        return running.error

    def alone(self, request: ArRequest) -> Outcome:
        model, first = self.batch._runner.model, versions_of(request)[0]
        own = self.alone_in() if self.alone_in else ArBatch.single(model, PrefixCache(model), first)
        group = admit(own, request)
        finish(own, group)
        return outcome(group, self.columns)

    def assert_same(self, found: Outcome, expected: Outcome) -> None:
        assert found == expected


def versions_of(request: ArRequest) -> Sequence[UtteranceSpec]:
    return [request] if isinstance(request, UtteranceSpec) else request


def admit(batch: ArBatch, request: ArRequest) -> SequenceOrGroup:
    first, *later = versions_of(request)
    return batch.admit(first, later=deque(later)) if later else batch.admit(first)


def assert_as_alone(model: Valle, *groups: SequenceOrGroup) -> None:
    """Assert that codes, trace and backtracks are those of the same utterance sampled alone."""
    for group in groups:
        assert outcome(group) == outcome(alone(model, group.inputs)), group.inputs.params


def assert_read_its_own(model: Valle, group: SequenceOrGroup) -> None:
    """Assert that each kept code was sampled from what the model says of the codes before it.

    The trace and the backtracks tell together how it came to these codes.
    """
    codes, trace, back = group.ar_codes().tolist(), group.trace, [*group.backtracks]
    assert trace is not None
    sampled = [] if group.inputs.kept is None else ar_codes_of(group.inputs.kept).tolist()
    first, rows = len(sampled), dict[int, int]()  # of each frame the last record: of what is kept
    columns = trace["frame"].tolist(), trace["code"].tolist()
    for row, (frame, code) in enumerate(zip(*columns, strict=True)):
        if frame < len(sampled):
            one = back.pop(0)
            assert (one.frames, one.kept, one.code) == (len(sampled), frame, sampled[frame])
        sampled[frame:], rows[frame] = [code], row
    assert (back, sampled[: len(codes)]) == ([], codes)
    own, guided = (
        logprobs_of(logits, codes)[first:] for logits in logits_after(model, group.inputs, codes)
    )
    kept = [rows[frame] for frame in range(first, len(codes))]
    np.testing.assert_allclose(trace["logprob"][kept], own, atol=2e-4)
    # What was sampled instead of a code that failed has in it what the row was to avoid.
    avoiding = [range(one.kept, one.until) for one in group.backtracks]
    again = np.isin(range(first, len(codes)), [*chain.from_iterable(avoiding)])
    found = np.where(again, guided, trace["guided_logprob"][kept])
    np.testing.assert_allclose(found, guided, atol=2e-4)


def logits_after(
    model: Valle, inputs: UtteranceSpec, codes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The model's logits ``(T + 1, V)`` before every code and behind the last.

    Its own, and with guidance applied. Float weights: without a cache; int8 rounds what the cache
    keeps, so those use one.
    """
    given = torch.tensor(codes, dtype=torch.int64)
    read = _step_by_step if is_quantized(model) else Valle.ar_logits
    with torch.inference_mode():
        own, *null = [read(model, prefix, given[:, None]) for prefix in inputs.ar_prefixes(model)]
        if not is_guided(inputs.params):
            return own, own
        if not null:
            states = _states_step_by_step(model, inputs.ar_prefix(model), given[:, None])
            null = [model.logits_with_null(states, slice(None))[len(states) :]]
        knobs = [
            own.new_full((len(own),), knob)
            for knob in (inputs.params.cfg_strength, inputs.params.cfg_rescale)
        ]
        return own, guide(own[:, None], null[0][:, None], *knobs)[:, 0]


def _step_by_step(model: Valle, prefix: Prefix, codes: Tensor) -> Tensor:
    states = _states_step_by_step(model, prefix, codes)
    return model.logits(states[:, : model.config.width], 0)


def _states_step_by_step(model: Valle, prefix: Prefix, codes: Tensor) -> Tensor:
    cache = model.new_cache(1, len(prefix) + len(codes))
    wanted = [SlotPrefix(prefix, 0, None)]
    ((whole, _),) = PrefixCache(model).read(wanted, cache, one_by_one(model, model.null_taps))
    hidden = [whole[-1:]]
    for frame, embedding in enumerate(model.embed_response(codes, 0)):
        position = torch.tensor([prefix.response_start + frame])
        taps = model.null_taps
        hidden.append(model.transformer.step(embedding[None], position, cache, [0], taps)[0])
    return torch.cat(hidden)


def logprobs_of(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """The log-probability of each token under its row of logits."""
    index = torch.tensor(tokens)[:, None]
    return logits[: len(tokens)].log_softmax(-1).gather(1, index)[:, 0]
