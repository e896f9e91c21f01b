"""Residual vector quantisation of a codec's latent, and checks of its input."""

import torch
from torch import Tensor, nn

from models.config import AnyCodecConfig, VocosConfig


class Quantizer(nn.Module):
    """Residual vector quantisation: each level codes the residual of the levels before it."""

    codebooks: Tensor

    def __init__(self, config: AnyCodecConfig | VocosConfig) -> None:
        super().__init__()
        shape = (config.levels, config.codes, config.dimension)
        self.register_buffer("codebooks", torch.zeros(shape))

    def encode(self, latent: Tensor) -> Tensor:
        """Quantise ``latent`` ``[T, D]`` level by level; return codes ``[T, K]`` int64."""
        codes = []
        residual = latent
        for book in self.codebooks:
            codes.append(nearest(residual, book))
            residual = residual - book[codes[-1]]
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the latent ``[T, D]`` of ``codes`` ``[T, K']``, 1 <= K' <= K."""
        levels = torch.arange(codes.shape[1], device=codes.device)
        return self.codebooks[levels, codes].sum(1)


def nearest(vectors: Tensor, book: Tensor) -> Tensor:
    """Return the index ``[N]`` of the row of ``book`` ``[V, D]`` nearest to each of ``[N, D]``."""
    # argmin |v - e|^2 without the term in |v|^2, which is the same for all e
    return (book.pow(2).sum(1) - 2 * vectors @ book.T).argmin(1)


def check_samples(samples: Tensor) -> None:
    """Raise ValueError for samples that are empty or not of one dimension."""
    if samples.ndim != 1 or samples.numel() == 0:
        raise ValueError(f"samples must be [N] with N > 0, got {list(samples.shape)}")


def check_codes(codes: Tensor, config: AnyCodecConfig | VocosConfig) -> None:
    """Raise ValueError unless codes are ``[T, K']``, T > 0, 1 <= K' <= K, and all ids in range.

    Ids on a GPU are not looked at, which would wait for it.
    """
    if codes.ndim != 2 or not 1 <= codes.shape[1] <= config.levels or not len(codes):
        raise ValueError(
            f"codes must be [T, 1..{config.levels}] with T > 0, got {list(codes.shape)}"
        )
    if codes.is_cpu and (int(codes.min()) < 0 or int(codes.max()) >= config.codes):
        raise ValueError(f"codes must lie in 0..{config.codes - 1}")
