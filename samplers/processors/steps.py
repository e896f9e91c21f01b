"""The steps of the chain: which knobs each reads, and what it does to the scores of a batch.

A step is built once, when its rows are admitted: the builder reads the rows' params into `(B, 1)`
tensors, in which a row that has the step off gets a neutral value, and returns None if it is off in
every row, so that it then costs nothing. Being neutral is exact: a row's scores do not change by a
bit, which is why a row does not depend on its neighbours.
"""

import math
from collections.abc import Callable, Mapping

import torch

from samplers.knobs.order import StepName
from samplers.ops import filters, penalties, repeats
from samplers.ops.draw import Draw
from samplers.processors.batch_params import ALL, BatchParams, within
from samplers.processors.scores import Scores, Step
from samplers.processors.temperature import temperature_step

Builder = Callable[[BatchParams], Step | None]


def _bias(rows: BatchParams) -> Step | None:
    bias = torch.zeros(len(rows.params), rows.vocab_size)
    for row, params in enumerate(rows.params):
        for token, value in params.logit_bias.items():
            if 0 <= token < rows.vocab_size:
                bias[row, token] = within(value)
        bias[
            row, [token for token in params.ban_tokens if 0 <= token < rows.vocab_size]
        ] = -math.inf
    if not bias.any():
        return None
    bias = bias.to(rows.device)
    return lambda scores: scores.replace(scores.logits + bias)


def _ban_sequences(rows: BatchParams) -> Step | None:
    legal = [
        [s for s in params.ban_sequences if all(0 <= code < rows.vocab_size for code in s.codes)]
        for params in rows.params
    ]
    count = max((len(sequences) for sequences in legal), default=0)
    if not count:
        return None
    width = max(len(s.codes) for sequences in legal for s in sequences) - 1
    prefixes = torch.full((len(legal), count, width), -2, dtype=torch.int64)
    last = torch.zeros(len(legal), count, dtype=torch.int64)
    strength = torch.zeros(len(legal), count)
    for row, sequences in enumerate(legal):
        for place, sequence in enumerate(sequences):
            *before, last[row, place] = sequence.codes
            prefixes[row, place, : len(before)] = torch.tensor(before[::-1], dtype=torch.int64)
            strength[row, place] = within(sequence.strength)
    tables = [table.to(rows.device) for table in (prefixes, last, strength)]
    return lambda scores: scores.replace(
        repeats.ban_sequences(scores.logits, scores.recent, *tables)
    )


def _min_frames(rows: BatchParams) -> Step | None:
    stop_token = rows.stop_token
    if stop_token is None or not any(params.min_frames for params in rows.params):
        return None
    least = rows.column([p.min_frames for p in rows.params])
    return lambda scores: scores.replace(
        penalties.hold_stop(scores.logits, scores.lengths, least, stop_token)
    )


def _repetition_penalty(rows: BatchParams) -> Step | None:
    parts = (_repetition(rows), _frequency_presence(rows))
    steps = [step for step in parts if step is not None]

    def step(scores: Scores) -> None:
        for part in steps:
            part(scores)

    return step if steps else None


def _repetition(rows: BatchParams) -> Step | None:
    if not rows.any("repetition_penalty"):
        return None
    factor = rows.column([math.log(p.repetition_penalty) for p in rows.params])
    decay = rows.column([p.repetition_penalty_decay for p in rows.params])
    window = rows.column([p.repetition_penalty_window or ALL for p in rows.params])
    clamp = rows.column([p.repetition_penalty_clamp for p in rows.params])
    mode = rows.column([penalties.MODES.index(p.repetition_penalty_mode) for p in rows.params])
    one_time = rows.flags([p.repetition_penalty_one_time for p in rows.params])

    def step(scores: Scores) -> None:
        nats = penalties.repetition_nats(
            scores.heard, rows.vocab_size, log_factor=factor, decay=decay, window=window,
            clamp=clamp, one_time=one_time,
        )  # fmt: skip
        scores.replace(penalties.apply_penalty(scores.logits, nats, mode))

    return step


def _frequency_presence(rows: BatchParams) -> Step | None:
    if not (rows.any("frequency_penalty") or rows.any("presence_penalty")):
        return None
    frequency = rows.knob("frequency_penalty", 0.0)
    presence = rows.knob("presence_penalty", 0.0)
    window = rows.column([p.repetition_penalty_window or ALL for p in rows.params])

    def step(scores: Scores) -> None:
        counts = penalties.occurrences(scores.heard, rows.vocab_size, window)
        scores.replace(penalties.frequency_presence(scores.logits, counts, frequency, presence))

    return step


def _dry(rows: BatchParams) -> Step | None:
    if not rows.any("dry"):
        return None
    multiplier = rows.knob("dry", 0.0)
    base = rows.column([p.dry_base for p in rows.params], torch.float64)
    allowed = rows.column([p.dry_allowed_length for p in rows.params])
    span = rows.column([p.dry_range or ALL for p in rows.params])
    table = torch.zeros(len(rows.params), rows.vocab_size, dtype=torch.bool)
    for row, params in enumerate(rows.params):
        codes = params.dry_sequence_breakers
        table[row, [code for code in codes if 0 <= code < rows.vocab_size]] = True
    breakers = table.to(rows.device) if table.any() else None
    return lambda scores: scores.replace(
        repeats.dry(
            scores.logits, scores.heard, scores.runs, multiplier=multiplier, base=base,
            allowed_length=allowed, span=span, breakers=breakers,
        )
    )  # fmt: skip


def _no_repeat_ngram(rows: BatchParams) -> Step | None:
    if not rows.any("no_repeat_ngram"):
        return None
    size = rows.knob("no_repeat_ngram", 0)
    return lambda scores: scores.replace(
        repeats.no_repeat_ngram(scores.logits, scores.heard, scores.runs, size)
    )


def _length_penalty(rows: BatchParams) -> Step | None:
    stop_token = rows.stop_token
    power, factor = rows.any("length_penalty"), rows.any("exponential_decay")
    if stop_token is None or not (power or factor):
        return None
    powers = rows.knob("length_penalty", 0.0)
    mode = rows.column([penalties.MODES.index(p.length_penalty_mode) for p in rows.params])
    factors = rows.knob("exponential_decay", 1.0)
    start = rows.column([p.exponential_decay_start for p in rows.params])

    def step(scores: Scores) -> None:
        logits, lengths = scores.logits, scores.lengths
        if power:
            logits = penalties.length_penalty(logits, lengths, powers, mode, stop_token)
        if factor:
            logits = penalties.exponential_decay(logits, lengths, factors, start, stop_token)
        scores.replace(logits)

    return step


def _top_n_sigma(rows: BatchParams) -> Step | None:
    if not rows.any("top_n_sigma"):
        return None
    n = rows.knob("top_n_sigma", math.inf)
    return lambda scores: scores.keep_from(filters.top_n_sigma_floor(scores.logits, n))


def _top_k(rows: BatchParams) -> Step | None:
    if not (rows.any("top_k") or rows.any("entropix")):
        return None
    k = rows.knob("top_k", rows.vocab_size)
    return lambda scores: scores.keep_from(
        filters.top_k_floor(scores.ordered, scores.moved("top_k", k))
    )


def _top_p(rows: BatchParams) -> Step | None:
    if not (rows.any("top_p") or rows.any("entropix")):
        return None
    p = rows.knob("top_p", math.inf)
    return lambda scores: scores.keep_from(
        filters.top_p_floor(scores.ordered, scores.moved("top_p", p))
    )


def _min_p(rows: BatchParams) -> Step | None:
    if not (rows.any("min_p") or rows.any("entropix")):
        return None
    p = rows.knob("min_p", 0.0)
    keep = rows.column([p.min_tokens_to_keep for p in rows.params])
    several = any(params.min_tokens_to_keep > 1 for params in rows.params)

    def step(scores: Scores) -> None:
        floor = filters.min_p_floor(scores.best, scores.moved("min_p", p))
        if several:
            floor = torch.minimum(floor, filters.top_k_floor(scores.ordered, keep))
        scores.keep_from(floor)

    return step


def _typical_p(rows: BatchParams) -> Step | None:
    if not rows.any("typical_p"):
        return None
    p = rows.knob("typical_p", math.inf)
    protected = rows.protected
    return lambda scores: scores.replace(
        filters.spare(filters.typical(scores.logits, p), scores.logits, protected)
    )


def _epsilon_cutoff(rows: BatchParams) -> Step | None:
    if not rows.any("epsilon_cutoff"):
        return None
    epsilon = rows.knob("epsilon_cutoff", 0.0)
    return lambda scores: scores.keep_from(filters.epsilon_floor(scores.logits, epsilon))


def _eta_cutoff(rows: BatchParams) -> Step | None:
    if not rows.any("eta_cutoff"):
        return None
    eta = rows.knob("eta_cutoff", 0.0)
    return lambda scores: scores.keep_from(filters.eta_floor(scores.logits, eta))


def _xtc(rows: BatchParams) -> Step | None:
    if not rows.any("xtc"):
        return None
    probability = rows.knob("xtc", 0.0)
    threshold = rows.column([p.xtc_threshold for p in rows.params])
    protected = rows.protected

    def step(scores: Scores) -> None:
        acts = scores.noise(Draw.XTC, 1) < probability
        scores.replace(filters.xtc(scores.logits, threshold, acts, protected))

    return step


FIXED: tuple[Builder, ...] = (_bias, _ban_sequences, _min_frames)
"""Steps that come first, whatever the order."""

MOVABLE: Mapping[StepName, Builder] = {
    "repetition_penalty": _repetition_penalty,
    "dry": _dry,
    "no_repeat_ngram": _no_repeat_ngram,
    "length_penalty": _length_penalty,
    "top_n_sigma": _top_n_sigma,
    "temperature": temperature_step,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "typical_p": _typical_p,
    "epsilon_cutoff": _epsilon_cutoff,
    "eta_cutoff": _eta_cutoff,
    "xtc": _xtc,
}
"""Steps whose order a request may choose, by name."""
