"""Ways to run steps of the chain on rows of unlike vocabularies, params and histories at once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import HostColumn, RowInput, SlotTable
from samplers.ar.trace import Trace, columns, entries
from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import StepName
from samplers.ops.repeats import runs_of
from samplers.ops.sample import Stage, stream_key
from samplers.processors.processor import BatchParams, LogitsProcessor, Scores
from samplers.processors.registry import BY_STEP

Case = Mapping[str, Any]

FILTERS: Mapping[str, StepName] = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical": "typical_p",
    "epsilon_cutoff": "epsilon_cutoff",
    "eta_cutoff": "eta_cutoff",
    "top_n_sigma": "top_n_sigma",
}
"""The step that each family of golden filters is of."""


def load(golden: Path, family: str) -> list[Case]:
    """The cases of a family of golden vectors."""
    path = golden / "samplers" / f"{family}.dev.json"
    if family.startswith("llama_cpp") and not path.exists():
        pytest.skip(f"{path} is missing: others' vectors are not copied here")
    cases: list[Case] = json.loads(path.read_text())["cases"]
    assert cases
    return cases


def chain_params(case: Case) -> tuple[SamplingParams, int]:
    """The params of a golden chain, in the modes that the cases leave out, and its stop."""
    knobs: dict[str, Any] = dict(case["params"])
    stop = knobs.pop("stop_token")
    modes = {"repetition_penalty_mode": "signed", "length_penalty_mode": "signed"}
    return SamplingParams(**modes, **knobs, protect_stop=False), stop


def count_runs(recent: Tensor) -> Tensor:
    """The runs ``(B, L)`` of histories ``(B, L)``, newest first, -1 before their beginning."""
    table = torch.zeros_like(recent)
    for row, codes in enumerate(recent.tolist()):
        sampled = [code for code in reversed(codes) if code >= 0]
        table[row, : len(sampled)] = torch.tensor(runs_of(sampled), dtype=torch.int64)
    return table


def stack(rows: Sequence[Sequence[float | str]], pad: float = -torch.inf) -> Tensor:
    """Rows of unequal width as one float32 tensor; the strings of the golden files are numbers."""
    width = max(len(row) for row in rows)
    padded = [[float(value) for value in row] + [pad] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.float64).to(torch.float32)


def newest_first(histories: Sequence[Sequence[int]]) -> Tensor:
    """Histories (oldest first) as the chain sees them: newest first, padded with -1."""
    width = max((len(history) for history in histories), default=0)
    rows = [[*reversed(history), *[-1] * (width - len(history))] for history in histories]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(histories), width)


def run(
    steps: Sequence[StepName | type[LogitsProcessor]],
    params: Sequence[SamplingParams],
    logits: Tensor,
    histories: Sequence[Sequence[int]] | None = None,
    *,
    lengths: Sequence[int] | None = None,
    stop_token: int | None = None,
) -> Tensor:
    """Take a batch through the steps; rows that have a step off must not notice."""
    histories = histories if histories is not None else [[]] * len(params)
    counts = lengths if lengths is not None else [len(history) for history in histories]
    batch = make_batch(params, logits.shape[1], stop_token)
    scores = make_scores(logits, histories, counts)
    for step in steps:
        for processor in BY_STEP[step] if isinstance(step, str) else (step,):
            if batch.any(*processor.features):
                processor(batch)(scores)
    return scores.logits


def make_batch(
    params: Sequence[SamplingParams], vocab_size: int, stop_token: int | None = None
) -> BatchParams:
    """The params of a batch; without a stop there is none to protect."""
    if stop_token is None:
        params, stop_token = [p.model_copy(update={"protect_stop": False}) for p in params], 0
    return BatchParams(params, vocab_size, stop_token, torch.device("cpu"), [()] * len(params))


def make_sampler(
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    *,
    stop_token: int,
    vocab_size: int,
    max_frames: int,
    utterances: Sequence[int] | None = None,
    candidates: Sequence[int] | None = None,
    prompts: Sequence[Tensor | None] | None = None,
    silent: Sequence[int] = (),
) -> ArSampler:
    """A sampler with these rows, in slots in their order; a search has one a beam."""
    count = len(params)
    prompts = prompts or [None] * count
    beams = [one.beam_width or 1 for one in params]
    longest = max((len(prompt) for prompt in prompts if prompt is not None), default=0)
    table = SlotTable(sum(beams), frames=max_frames, vocab_size=vocab_size, prompt=longest)
    sampler = ArSampler(table, stop_token=stop_token)
    slots = iter(range(sum(beams)))
    for one, seed, utterance, candidate, prompt, rows in zip(
        params, seeds, utterances or [0] * count, candidates or [0] * count, prompts, beams,
        strict=True,
    ):  # fmt: skip
        given = RowInput(one, seed, max_frames, utterance, candidate, prompt, silent)
        sampler.join([next(slots) for _ in range(rows)], given)
    return sampler


def entries_of(trace: Trace, row: int) -> list[dict[str, Any]]:
    """The steps of an utterance that had this row in all, in plain numbers."""
    return entries(columns(((record, row) for record in trace.records), top=trace.top))


def make_scores(
    logits: Tensor, histories: Sequence[Sequence[int]], lengths: Sequence[int]
) -> Scores:
    """The scores of rows that sample from streams 0, 1, ..."""
    recent = newest_first(histories)
    keys = torch.tensor([[stream_key(row, 0, Stage.AR)] for row in range(len(logits))])
    return Scores(
        logits,
        torch.tensor(lengths)[:, None],
        recent,
        recent,
        count_runs(recent),
        keys,
        torch.zeros_like(keys),
    )


def attention(rows: Sequence[Sequence[float]]) -> Tensor:
    """The four statistics of each row."""
    return torch.tensor(rows, dtype=torch.float32)


def kept(logits: Tensor) -> list[list[int]]:
    """The ids that are left in each row."""
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits]


def assert_probs(logits: Tensor, expected: Sequence[Sequence[float | str]]) -> None:
    """Assert that rows of logits mean the expected probabilities, to 1e-5."""
    torch.testing.assert_close(logits.softmax(-1), stack(expected, 0.0), atol=1e-5, rtol=0)


def assert_logits(logits: Tensor, expected: Sequence[Sequence[float | str]]) -> None:
    """Assert that rows of logits are the expected ones, to the golden files' tolerance."""
    torch.testing.assert_close(logits, stack(expected), atol=1e-4, rtol=1e-5)


def codes_of(sampler: ArSampler, slot: int) -> list[int]:
    """The codes that a row has sampled, without its prompt."""
    table = sampler.table
    start = int(table.host[slot, HostColumn.PROMPTED])
    return table.codes[slot, start : start + int(table.lengths[slot])].tolist()
