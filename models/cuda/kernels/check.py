"""Tries each kernel once where it is to run, against its reference there."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

import torch
from torch import Tensor

from gpu.lost import is_device_lost
from models.config import ModelConfig
from models.cuda.kernels import operators
from models.cuda.kernels.operators import NAMES, Kernels
from models.cuda.kernels.reference import floats, halves, in_8_bits
from models.cuda.kernels.sharing import PAGE, PROGRAMS
from samplers.ar.plain import plain_row
from samplers.ar.state import HostColumn
from samplers.knobs.params import SamplingParams

log = logging.getLogger(__name__)

TOLERANCE: Final = {torch.float32: 2**-14, torch.bfloat16: 2**-6}
"""Of the largest entry, by type. Float32 has 24 bits: some hundred sums in another order, and an
exponential of hardware, cost a few of them. Bfloat16 has 8: a kernel rounds once where operators
round up to three times, each half a unit of the last place; the integers of 8 bits that are made of
such numbers may differ by one. A mistake costs all bits."""

# Products of few rows are computed otherwise than those of many
_ROWS = 3
_MANY = 6
_SHARES = (1, 2, 4, 8, 16)  # programs that share positions out, by batch and length
_GUIDED: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.0, "cfg_strength": 1.5},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "cfg_strength": 3.0, "cfg_rescale": 0.7},
    {"temperature": 1.2, "top_p": 0.8, "min_p": 0.1, "min_tokens_to_keep": 3, "cfg_strength": 2.0},
)
_PENALISED: Final[tuple[dict[str, Any], ...]] = (
    {"logit_bias": {3: 2.0}, "ban_tokens": (5,), "min_frames": 20},
    {"repetition_penalty": 1.3, "repetition_penalty_decay": -0.5, "presence_penalty": 0.2},
    {"repetition_penalty": 1.1, "repetition_penalty_mode": "additive", "frequency_penalty": 0.3},
)

Given = tuple[Any, ...]
"""The arguments of a kernel."""


def usable(config: ModelConfig, device: torch.device) -> Kernels:
    """Return the kernels that compute on a device what their references do.

    One that does not, or that cannot be compiled, is left to torch's operators, with a warning.
    """
    narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    inputs = inputs_of(config, device, torch.bfloat16 if narrow else torch.float32)
    failed: dict[str, str] = {}
    for name in NAMES:
        try:
            with torch.inference_mode():
                why = _difference(name, inputs[name]())
        except Exception as error:
            if is_device_lost(error):
                raise
            log.warning("the kernel %s cannot run", name, exc_info=True)
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if why:
            log.warning("the kernel %s is left to torch's operators: %s", name, why)
            failed[name] = why
    return Kernels(frozenset(NAMES) - failed.keys(), failed)


def _difference(name: str, inputs: Iterator[Given]) -> str:
    """Return in what an operator differs from its reference more than the type allows; or ""."""
    for given in inputs:
        far = distance(getattr(operators, name), operators.reference_of(name), given)
        if far > TOLERANCE.get(given[0].dtype, 0.0):
            shapes = ", ".join(str([*one.shape]) for one in _tensors(given))
            return f"differs by {far:.2g} of the largest entry, of {shapes}"
    return ""


def distance(kernel: Callable[..., Any], reference: Callable[..., Any], given: Given) -> float:
    """Return by how much results, and what is changed of the arguments, differ at most.

    As a share of the largest entry, at least 1; infinite where whole numbers or NaN differ.
    """
    own, other = (
        [one.clone() if isinstance(one, Tensor) else one for one in given] for _ in range(2)
    )
    pairs = zip(
        map(floats, (*_tensors([kernel(*own)]), *_tensors(own))),
        map(floats, (*_tensors([reference(*other)]), *_tensors(other))),
        strict=True,
    )
    return max(_apart(found, expected) for found, expected in pairs)


def _apart(found: Tensor, expected: Tensor) -> float:
    if not found.is_floating_point():
        return 0.0 if torch.equal(found, expected) else inf
    if not torch.equal(found.isnan(), expected.isnan()):
        return inf
    away = (found.double() - expected.double()).nan_to_num(0.0, inf, inf).abs().max()
    largest = expected.double().nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1.0)
    return (away / largest).item()


def inputs_of(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Mapping[str, Callable[[], Iterator[Given]]]:
    """Return for each kernel what makes arguments for it, of a model's sizes."""
    chance = torch.Generator().manual_seed(0)
    heads = config.heads
    kv_heads = config.kv_heads
    head_dim = config.head_dim

    def normal(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=chance).to(device, dtype)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=chance).to(device)

    def each_once(*shape: int) -> Tensor:
        count = torch.Size(shape).numel()
        return torch.randperm(count, generator=chance).view(shape).to(device)

    def norm() -> Iterator[Given]:
        x = normal(_ROWS, config.width)
        x[0] = 0.0
        x[1, 0] = torch.nan
        yield x, normal(config.width), config.norm_eps

    def project() -> Iterator[Given]:
        for rows, kind in ((1, ""), (_ROWS, config.activation), (_MANY, config.activation)):
            x = normal(rows, config.width)
            outputs = config.ffn if kind else 3 * config.width
            x[1:2] = 0.0
            weight = normal(halves(kind) * outputs, config.width) * config.width**-0.5
            bias = [normal(len(weight))] * config.block.bias
            yield x, weight, normal(config.width), config.norm_eps, kind, *bias

    def add_product() -> Iterator[Given]:
        for rows in (1, _ROWS, _MANY):
            weight = normal(config.width, config.ffn) * config.ffn**-0.5
            bias = [normal(config.width)] * config.block.bias
            yield normal(rows, config.width), normal(rows, config.ffn), weight, *bias

    def store() -> Iterator[Given]:
        angles = normal(_ROWS, 1, head_dim // 2, dtype=torch.float32)
        qkv = normal(_ROWS, heads + 2 * kv_heads, head_dim)
        places = each_once(PAGE)[:_ROWS]
        qkv[0, -1, 0] = torch.inf
        qkv[1, heads, 1] = torch.nan
        rotations = torch.polar(torch.ones_like(angles), angles)
        pool = normal(2, PAGE, kv_heads, head_dim)
        for held in (pool, in_8_bits(pool)):
            yield qkv, rotations, *held, places

    def attend() -> Iterator[Given]:
        group = heads // kv_heads
        steps = [(max(1, PROGRAMS // kv_heads // most), 1, 2 * most) for most in _SHARES]
        # A step whose rows hold one position each, and chunks of as many rows as a program takes.
        for sequences, count, held in [*steps, (_ROWS, 1, 1), (_ROWS, -(-PAGE // group), 5)]:
            seen = 1 + whole(held * PAGE if held > 1 else 1, sequences, count)
            edges = torch.tensor([held * PAGE, PAGE, PAGE + 1, 1])[: seen.numel() * (held > 1)]
            seen.view(-1)[: len(edges)] = edges.to(device)
            pool = normal(2, sequences * held * PAGE, kv_heads, head_dim)
            queries = normal(sequences * count, heads, head_dim)
            queries[-1, 0, 0] = torch.nan
            for rows in (pool, in_8_bits(pool)):
                yield queries, *rows, seen, each_once(sequences, held)

    def sample() -> Iterator[Given]:
        size = config.codes + 1
        numbers = whole(_ROWS, _ROWS, len(HostColumn))
        numbers[:, HostColumn.LIMIT] = 99
        numbers[:, HostColumn.KEY] = whole(2**62, _ROWS)
        numbers[:, HostColumn.ACTIVE] = 1
        codes = whole(config.codes, _ROWS, 100)
        lengths = torch.tensor((95, 0, 30)).to(device)
        logits, avoid = (normal(_ROWS, size, dtype=torch.float32) for _ in range(2))
        changed = codes, lengths, whole(3, _ROWS) == 0
        results = torch.zeros(_ROWS, 3, dtype=torch.float64, device=device)
        for knobs, partners in ((_GUIDED, (1, 2, 0)), (_PENALISED, (0, 1, 2))):
            numbers[:, HostColumn.PARTNER] = torch.tensor(partners)
            records = [plain_row(SamplingParams.model_validate(one), size) for one in knobs]
            plain = torch.stack(records).to(device)
            yield 3 * logits, numbers, avoid, plain, *changed, results, config.stop_token

    own = (norm, project, add_product, store, attend, sample)
    return {one.__name__: one for one in own}


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for one in values:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, tuple):
            yield from _tensors(one)
