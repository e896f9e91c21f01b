"""Inputs of the kernels, and by how much a kernel differs from its reference on them."""

from collections.abc import Callable
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.cuda.kernels import reference
from models.cuda.kernels.reference import LEVELS, in_8_bits
from models.cuda.kernels.sharing import PAGE

Kernel = Callable[..., Any]

CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
"""Of entries of about 1, a share of the largest: float32's products are summed in another order;
bfloat16 has 8 bits, and a kernel rounds once where operators round two or three times."""


STEP = 1 / LEVELS
"""Of 8 bits: where kernel and reference round to neighbours in bfloat16, integers may be too."""


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference as a share of the largest entry; infinite if NaN differ."""
    found, expected = found.double().cpu(), expected.double().cpu()
    if not torch.equal(found.isnan(), expected.isnan()):
        return float("inf")
    largest = max(1.0, expected.nan_to_num().abs().max().item())
    return (found - expected).nan_to_num().abs().max().item() / largest


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Attending(NamedTuple):
    """New positions of some sequences.

    Attributes:
        lengths: What each sequence held before.
        new: New positions of each.
        block: How many of these see each other.
        heads: Of queries.
        kv_heads: Of keys.
        head_dim: Entries of a head.
        columns: Positions of all pages of a sequence.
    """

    lengths: tuple[int, ...]
    new: int = 1
    block: int = 1
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    columns: int = 256


def seen_by(case: Attending) -> Tensor:
    own = torch.arange(case.new)
    reach = ((own // case.block + 1) * case.block).clamp(max=case.new)
    return torch.tensor(case.lengths)[:, None] + reach


def spoilt(memory: Tensor, held: Tensor) -> Tensor:
    """Return keys and values with NaN where nothing is held; in int8 the scales are."""
    if memory.dtype != torch.int8:
        return memory.masked_fill(~held[:, None, None], torch.nan)
    memory = memory.clone()
    for rows in memory:
        reference.integers_and_scales(rows)[1][~held] = torch.nan
    return memory


def attention_differs(
    attend: Kernel,
    case: Attending,
    dtype: torch.dtype,
    device: torch.device,
    *,
    eight: bool = False,
) -> float:
    """Return by how much attention differs from the reference.

    What no sequence sees is NaN for the kernel: it must not even be read.
    """
    batch, seen = len(case.lengths), seen_by(case)
    queries = normal(batch * case.new, case.heads, case.head_dim).to(dtype)
    count = batch * case.columns // PAGE
    pages = torch.randperm(count + 3, generator=torch.Generator().manual_seed(1))[:count]
    pages = pages.view(batch, -1)
    memory = normal(2, (count + 3) * PAGE, case.kv_heads, case.head_dim, seed=2).to(dtype)
    memory = in_8_bits(memory) if eight else memory
    held = torch.zeros(len(memory[0]), dtype=torch.bool)
    for row, own in zip(pages, seen.amax(1).tolist(), strict=True):
        held[(row[:, None] * PAGE + torch.arange(PAGE)).flatten()[:own]] = True
    given = spoilt(memory, held).to(device)
    expected = reference.attend(queries, memory[0], memory[1], seen, pages)
    found = attend(queries.to(device), *given, seen.to(device), pages.to(device))
    return difference(found, expected)


class Storing(NamedTuple):
    """New positions that are stored."""

    rows: int
    heads: int
    kv_heads: int
    head_dim: int
    broken: bool = False


def storing_differs(
    store: Kernel,
    case: Storing,
    dtype: torch.dtype,
    device: torch.device,
    *,
    eight: bool = False,
) -> float:
    """Return by how much queries, keys and values differ from the reference's."""
    rows, heads, kv_heads, head_dim, broken = case
    qkv = normal(rows, heads + 2 * kv_heads, head_dim).to(dtype)
    if broken:
        qkv[0, heads, 1], qkv[-1, -1, 0] = torch.nan, torch.inf
    angles = normal(rows, 1, head_dim // 2, seed=1)
    rotations = torch.polar(torch.ones_like(angles), angles)
    places = torch.randperm(2 * rows, generator=torch.Generator().manual_seed(2))[:rows]
    memory = normal(2, 2 * rows, kv_heads, head_dim, seed=3).to(dtype)
    memory = in_8_bits(memory) if eight else memory
    results = []
    for run, place in ((store, device), (reference.store, torch.device("cpu"))):
        own = memory.to(place, copy=True)
        given = qkv.to(place, copy=True), rotations.to(place), own[0], own[1], places.to(place)
        queries = run(*given)
        results.append([queries, *map(reference.floats, own)])
    return max(starmap(difference, zip(*results, strict=True)))
