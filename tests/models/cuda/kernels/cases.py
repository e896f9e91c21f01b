"""Inputs of the kernels, and by how much a kernel differs from its reference on them."""

from collections.abc import Callable
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.cuda.kernels import reference

Kernel = Callable[..., Any]

CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
"""Of entries of about 1, a share of the largest: float32's products are summed in another order;
bfloat16 has 8 bits, and a kernel rounds once where operators round two or three times."""


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
        columns: Positions of a slot, or of all pages of a sequence.
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


def attention_differs(
    attend: Kernel, case: Attending, dtype: torch.dtype, device: torch.device, *, paged: bool
) -> float:
    """Return by how much attention differs from the reference.

    What no sequence sees is NaN for the kernel: it must not even be read.
    """
    batch, page = len(case.lengths), 64
    seen = seen_by(case)
    queries = normal(batch * case.new, case.heads, case.head_dim).to(dtype)
    if paged:
        count = batch * case.columns // page
        pages = torch.randperm(count + 3, generator=torch.Generator().manual_seed(1))[:count]
        pages = pages.view(batch, -1)
        memory = normal(2, (count + 3) * page, case.kv_heads, case.head_dim, seed=2).to(dtype)
        stored = [one[None].transpose(1, 2) for one in memory]
        held = torch.zeros(len(memory[0]), dtype=torch.bool)
        for row, own in zip(pages, seen.amax(1).tolist(), strict=True):
            places = (row[:, None] * page + torch.arange(page)).flatten()
            held[places[:own]] = True
        unread = memory.masked_fill(~held[:, None, None], torch.nan)
        given = [one[None].transpose(1, 2) for one in unread.to(device)]
    else:
        pages = None
        memory = normal(2, batch, case.kv_heads, case.columns, case.head_dim, seed=2).to(dtype)
        stored = [*memory]
        held = torch.arange(case.columns) < seen.amax(1)[:, None]
        given = [*memory.masked_fill(~held[None, :, None, :, None], torch.nan).to(device)]
    expected = reference.attend(queries, stored[0], stored[1], seen, pages, case.columns)
    found = attend(
        queries.to(device), *given, seen.to(device),
        None if pages is None else pages.to(device), case.columns,
    )  # fmt: skip
    return difference(found, expected)


def storing_differs(
    store: Kernel, rows: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype,
    device: torch.device, *, paged: bool, broken: bool = False,
) -> float:  # fmt: skip
    """Return by how much queries, keys and values differ from the reference's."""
    slots = 1 if paged else rows
    qkv = normal(rows, heads + 2 * kv_heads, head_dim).to(dtype)
    if broken:
        qkv[0, heads, 1], qkv[-1, -1, 0] = torch.nan, torch.inf
    angles = normal(rows, 1, head_dim // 2, seed=1)
    rotations = torch.polar(torch.ones_like(angles), angles)
    places = torch.randperm(2 * rows, generator=torch.Generator().manual_seed(2))[:rows]
    memory = normal(2, slots, 2 * rows, kv_heads, head_dim, seed=3).to(dtype)
    results = []
    for run, place in ((store, device), (reference.store, torch.device("cpu"))):
        own = memory.to(place, copy=True).transpose(2, 3)
        queries = run(
            qkv.to(place, copy=True), rotations.to(place), own[0], own[1], places.to(place), heads
        )
        results.append([queries, own])
    return max(starmap(difference, zip(*results, strict=True)))
