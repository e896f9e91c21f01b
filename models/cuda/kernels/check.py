"""Tries each kernel once where it is to run, against its reference there."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from models.config import ModelConfig
from models.cuda.kernels import operators
from models.cuda.kernels.choice import NAMES, Kernels
from models.cuda.kernels.reference import floats, in_8_bits
from models.cuda.kernels.sharing import PAGE, PROGRAMS, sharing
from models.cuda.lost import is_device_lost
from samplers.ar.plain import light_row
from samplers.ar.state import Host
from samplers.knobs.params import SamplingParams

log = logging.getLogger(__name__)

TOLERANCE: Final = {torch.float32: 2**-14, torch.bfloat16: 2**-6, torch.float64: 2**-14}
"""Of the largest entry, by type. Float32 has 24 bits: some hundred sums in another order, and an
exponential of hardware, cost a few of them; float64 holds numbers that were such. Bfloat16 has 8: a
kernel rounds once where operators round up to three times, each half a unit of the last place. A
mistake costs all bits."""

_ROWS = 3
_SHARES = (1, 2, 4, 8, 16)  # programs that share positions out, by batch and length
_LIGHT_KNOBS: Final[tuple[dict[str, Any], ...]] = (
    {"logit_bias": {3: 2.0}, "ban_tokens": (5,), "min_frames": 20},
    {"repetition_penalty": 1.3, "repetition_penalty_decay": -0.5, "presence_penalty": 0.2},
    {"repetition_penalty": 1.1, "repetition_penalty_mode": "additive", "frequency_penalty": 0.3},
)


def usable(config: ModelConfig, device: torch.device) -> Kernels:
    """Return the kernels that compute on a device what their references do.

    One that does not, or that cannot be compiled, is left to torch's operators, with a warning.
    """
    narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    tries = _tries(config, device, torch.bfloat16 if narrow else torch.float32)
    failed: dict[str, str] = {}
    for name in NAMES:
        try:
            with torch.inference_mode():
                why = tries[name]()
        except Exception as error:
            if is_device_lost(error):
                raise
            log.warning("the kernel %s cannot run", name, exc_info=True)
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if why:
            log.warning("the kernel %s is left to torch's operators: %s", name, why)
            failed[name] = why
    return Kernels(frozenset(NAMES) - failed.keys(), failed)


def differ(found: Tensor, expected: Tensor, dtype: torch.dtype) -> str:
    """Return in what two results differ more than the type allows; empty: in nothing."""
    if not torch.equal(found.isnan(), expected.isnan()):
        return "NaN in other places"
    found, expected = found.double().nan_to_num(), expected.double().nan_to_num()
    largest = max(1.0, expected.abs().max().item())
    far = (found - expected).abs().max().item() / largest
    return "" if far <= TOLERANCE[dtype] else f"differs by {far:.2g} of the largest entry"


def _tries(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Mapping[str, Callable[[], str]]:
    """Return for each kernel what compares it with its reference."""
    chance = torch.Generator().manual_seed(0)
    heads, kv_heads, head_dim = config.heads, config.kv_heads, config.head_dim

    def normal(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=chance).to(device, dtype)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=chance).to(device)

    def same(name: str, *given: Any) -> str:
        own, other = (_copied(given) for _ in range(2))
        found, expected = getattr(operators, name)(*own), operators.reference_of(name)(*other)
        pairs = [*zip(_tensors(found), _tensors(expected), strict=True)]
        pairs += zip(_tensors(own), _tensors(other), strict=True)  # what was changed
        pairs = [(floats(one), floats(two)) for one, two in pairs]
        exact = (differ(one, two, one.dtype) for one, two in pairs if one.is_floating_point())
        if why := next(filter(None, exact), ""):
            return why
        whole = (torch.equal(one, two) for one, two in pairs if not one.is_floating_point())
        return "" if all(whole) else "differs in codes or counts"

    def norm() -> str:
        return same("norm", normal(_ROWS, config.width), normal(config.width), config.norm_eps)

    def gated() -> str:
        return same("gated", normal(_ROWS, 2 * config.ffn), config.activation)

    def store() -> str:
        angles = normal(_ROWS, 1, head_dim // 2, dtype=torch.float32)
        qkv, places = normal(_ROWS, heads + 2 * kv_heads, head_dim), whole(PAGE, _ROWS)
        qkv[0, -1, 0] = torch.inf
        rotations = torch.polar(torch.ones_like(angles), angles)
        pool = normal(2, PAGE, kv_heads, head_dim)
        found = (same("store", qkv, rotations, *held, places) for held in (pool, in_8_bits(pool)))
        return next(filter(None, found), "")

    def attend() -> str:
        group = heads // kv_heads
        steps = [(max(1, PROGRAMS // kv_heads // most), 1, 2 * most) for most in _SHARES]
        # A step whose rows hold one position each, and chunks of as many rows as a program takes.
        for sequences, count, held in [*steps, (_ROWS, 1, 1), (_ROWS, -(-PAGE // group), 5)]:
            pages = torch.randperm(sequences * held, generator=chance).view(sequences, -1)
            seen = 1 + whole(held * PAGE if held > 1 else 1, sequences, count)
            pool = normal(2, sequences * held * PAGE, kv_heads, head_dim)
            queries = normal(sequences * count, heads, head_dim)
            for rows in (pool, in_8_bits(pool)):
                if why := same("attend", queries, *rows, seen, pages.to(device)):
                    shared = sharing(count * group, sequences, kv_heads, held * PAGE, dtype)
                    return f"{rows.dtype}, {shared.rows} rows, {shared.shares} shares: {why}"
        return ""

    def rows() -> tuple[Tensor, ...]:
        """Return numbers, codes and lengths of some rows."""
        numbers = whole(_ROWS, _ROWS, len(Host))
        numbers[:, Host.LIMIT], numbers[:, Host.KEY] = 99, whole(2**62, _ROWS)
        numbers[:, Host.ACTIVE] = 1
        return numbers, whole(config.codes, _ROWS, 100), whole(50, _ROWS)

    def begin() -> str:
        return same("begin", *rows(), whole(99, _ROWS, 1 + 99 // PAGE), PAGE)

    def draw() -> str:
        size = config.codes + 1
        numbers, codes, lengths = rows()
        knobs = [(0.0, size, torch.inf, 0.0, 1), (0.9, 50, 0.9, 0.0, 1), (1.2, size, 0.8, 0.1, 3)]
        plain_rows = torch.tensor(knobs, dtype=torch.float64, device=device)
        records = [light_row(SamplingParams.model_validate(one), size) for one in _LIGHT_KNOBS]
        light = torch.stack(records).to(device)
        given = (
            3 * normal(_ROWS, size, dtype=torch.float32), numbers,
            1.1 + normal(_ROWS, 2, dtype=torch.float32).abs(),
            normal(_ROWS, size, dtype=torch.float32),
            plain_rows, codes, lengths, whole(3, _ROWS) == 0,
            torch.zeros(_ROWS, 3, dtype=torch.float64, device=device), config.stop_token,
        )  # fmt: skip
        return same("draw", *given, None) or same("draw", *given, light)

    return {
        "norm": norm, "gated": gated, "store": store, "attend": attend, "begin": begin,
        "draw": draw,
    }  # fmt: skip


def _copied(given: tuple[Any, ...]) -> list[Any]:
    return [one.clone() if isinstance(one, Tensor) else one for one in given]


def _tensors(value: Any) -> list[Tensor]:
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, Tensor)]
