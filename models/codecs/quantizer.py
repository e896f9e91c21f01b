"""Residual vector quantisation: what both architectures of codec turn their latent into."""

from typing import Protocol

import torch
from torch import Tensor, nn


class Sizes(Protocol):
    """What of a codec's config its quantiser is made by."""

    @property
    def levels(self) -> int:
        """K, the code levels."""

    @property
    def codes(self) -> int:
        """V, the codes of a level."""

    @property
    def dimension(self) -> int:
        """D, the width of the latent."""


class Quantizer(nn.Module):
    """Residual vector quantisation: each level codes what the levels before it left over."""

    codebooks: Tensor

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        shape = (config.levels, config.codes, config.dimension)
        self.register_buffer("codebooks", torch.zeros(shape))

    def encode(self, latent: Tensor) -> Tensor:
        """Return the codes ``[T, K]`` int64 nearest to ``latent`` ``[T, D]``, level by level."""
        codes, residual = [], latent
        for book in self.codebooks:
            codes.append(nearest(residual, book))
            residual = residual - book[codes[-1]]
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the latent ``[T, D]`` of ``codes`` ``[T, K']``, K' from 1 to all levels."""
        levels = torch.arange(codes.shape[1], device=codes.device)
        return self.codebooks[levels, codes].sum(1)


def nearest(vectors: Tensor, book: Tensor) -> Tensor:
    """Return the index ``[N]`` of the row of ``book`` ``[V, D]`` nearest to each of ``[N, D]``."""
    # argmin |v - e|^2 without the term in |v|^2, which is the same for all e
    return (book.pow(2).sum(1) - 2 * vectors @ book.T).argmin(1)


def check_samples(samples: Tensor) -> None:
    """Do nothing if ``samples`` can be encoded: ``[N]``, N > 0.

    Raises:
        ValueError: They are empty or not of one dimension.
    """
    if samples.ndim != 1 or samples.numel() == 0:
        raise ValueError(f"samples must be [N] with N > 0, got {list(samples.shape)}")


def check_codes(codes: Tensor, config: Sizes) -> None:
    """Pass ``[T, K']`` with T > 0 and K' from 1 to the levels there are, all ids in range.

    Raises:
        ValueError: It is something else.
    """
    if codes.ndim != 2 or not 1 <= codes.shape[1] <= config.levels or not len(codes):
        raise ValueError(
            f"codes must be [T, 1..{config.levels}] with T > 0, got {list(codes.shape)}"
        )
    if int(codes.min()) < 0 or int(codes.max()) >= config.codes:
        raise ValueError(f"codes must lie in 0..{config.codes - 1}")
