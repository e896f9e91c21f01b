"""How work is shared out among programs; see `models.cuda.kernels.attention`. No Triton."""

from typing import Final, NamedTuple

import torch

PAGE: Final = 64
"""Positions of a page, which a program reads at once."""

FEW: Final = 4
"""Rows up to which a product is a kernel of our own: of one row it takes half as long as the
library's, with norm, gate and sum; of eight, longer."""

LEAST: Final = 16
"""Rows and columns of the smallest product that Triton makes. In float32 larger ones do not fit the
registers of any card."""

STEP: Final = 512
"""Inputs of a product that a program reads at once, for eight outputs of many that fill a card; of
fewer it computes four, and reads eight times as many inputs."""

_MANY: Final = 2048
_MOST_ROWS: Final = 64
PROGRAMS: Final = 256
"""That fill a card: two for each multiprocessor of an H100, nearly."""

_MOST_SHARES: Final = 16


class Sharing(NamedTuple):
    """What each program does."""

    rows: int  # queries of one KV head that a program attends from, a power of two
    tiles: int  # how many programs all queries of one KV head of a sequence take
    shares: int  # among how many programs the positions are shared out, a power of two


def sharing(
    queries: int, sequences: int, kv_heads: int, columns: int, dtype: torch.dtype
) -> Sharing:
    """Share out the queries of one KV head of each sequence, over at most ``columns`` of it."""
    most = LEAST if dtype == torch.float32 else _MOST_ROWS
    rows = min(max(power_of_2(queries), LEAST), most)
    tiles = -(-queries // rows)
    programs = tiles * sequences * kv_heads
    shares = max(1, min(PROGRAMS // programs, columns // PAGE, _MOST_SHARES))
    return Sharing(rows, tiles, 1 << shares.bit_length() - 1)


def product_tile(inputs: int, outputs: int) -> tuple[int, int]:
    """Return how many outputs of a product a program computes, and inputs it reads at once."""
    columns, most = (8, STEP) if outputs >= _MANY else (4, 8 * STEP)
    return columns, min(power_of_2(inputs), most)


def power_of_2(number: int) -> int:
    """Return the least power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()
