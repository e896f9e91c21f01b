"""How attention is shared out among programs; see `models.cuda.kernels.attention`. No Triton."""

from typing import Final, NamedTuple

import torch

BLOCK: Final = 64
"""Positions that are read at once where there are no pages; elsewhere a page."""

_PROGRAMS: Final = 256
"""That fill a card: two for each multiprocessor of an H100, nearly."""

LEAST: Final = 16
"""Rows and columns of the smallest product that Triton makes. In float32 larger ones do not fit the
registers of any card."""

_MOST_SHARES: Final = 16


class Sharing(NamedTuple):
    """What each program does.

    Attributes:
        rows: Queries of one KV head that a program attends from, a power of two.
        tiles: How many programs all queries of one KV head of a sequence take.
        shares: Among how many programs the positions are shared out, a power of two.
    """

    rows: int
    tiles: int
    shares: int


def sharing(
    queries: int, sequences: int, kv_heads: int, columns: int, dtype: torch.dtype
) -> Sharing:
    """Share attention out.

    Args:
        queries: Of one KV head of a sequence.
        sequences: How many.
        kv_heads: How many.
        columns: The most positions of a sequence.
        dtype: Of queries and keys.
    """
    most = LEAST if dtype == torch.float32 else BLOCK
    rows = min(max(power_of_2(queries), LEAST), most)
    tiles = -(-queries // rows)
    programs = tiles * sequences * kv_heads
    shares = max(1, min(_PROGRAMS // programs, columns // (2 * BLOCK), _MOST_SHARES))
    return Sharing(rows, tiles, 1 << shares.bit_length() - 1)


def power_of_2(number: int) -> int:
    """Return the least power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()
