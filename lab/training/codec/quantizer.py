"""Residual vector quantisation as it is trained: k-means start, moving averages, dead codes.

Source: van den Oord et al. 2017 (arXiv:1711.00937) for the moving averages and the straight-through
gradient; Zeghidour et al. 2021 (arXiv:2107.03312) for the residual levels and level dropout.
"""

import torch
from torch import Tensor

from models.codecs.quantizer import Quantizer, nearest

DECAY = 0.99
# EnCodec's 2 assumes batches of tens of thousands of frames; ours have some hundreds.
DEAD_BELOW = 0.02
KMEANS_ROUNDS = 12


class QuantizerTrainer:
    """Trains the codebooks of a `Quantizer` in place."""

    def __init__(self, quantizer: Quantizer, seed: int) -> None:
        self.books = quantizer.codebooks
        self.sizes = torch.ones(self.books.shape[:2], device=self.books.device)
        self.sums = self.books.clone()
        self.generator = torch.Generator()
        self.reseed(seed, 0)

    def reseed(self, seed: int, step: int) -> None:
        """Make what is drawn for dead codes follow from these two numbers alone."""
        self.generator.manual_seed((seed << 32) + step)

    @torch.no_grad()
    def start(self, latent: Tensor, batch_frames: int) -> list[float]:
        """Fit every level to latents ``[N, D]`` by k-means; return the deviation of what it leaves.

        ``batch_frames`` is how many vectors `quantise` will be given at a time.
        """
        residual, left = latent, []
        for level, book in enumerate(self.books):
            chosen = torch.randperm(len(residual), generator=self.generator)[: len(book)].to(
                book.device
            )
            book.copy_(residual[chosen])
            for _ in range(KMEANS_ROUNDS):
                sums, sizes = self._assign(residual, nearest(residual, book))
                filled = sizes > 0
                book[filled] = sums[filled] / sizes[filled, None]
            codes = nearest(residual, book)
            sizes = self._assign(residual, codes)[1]
            self.sizes[level] = sizes * batch_frames / len(residual)
            self.sums[level] = book * self.sizes[level][:, None]
            residual = residual - book[codes]
            left.append(float(residual.std()))
        return left

    def quantise(self, latent: Tensor, levels: int) -> tuple[Tensor, Tensor]:
        """Quantise ``[N, D]`` with the first ``levels`` and learn from it.

        Returns the quantised latent with a straight-through gradient, and the commitment
        loss.
        """
        residual = latent.detach()
        total = torch.zeros_like(residual)
        commitment = latent.new_zeros(())
        for level in range(levels):
            book = self.books[level]
            codes = nearest(residual, book)
            chosen = book[codes]
            commitment = commitment + (latent - (total + chosen)).pow(2).mean()
            self._learn(level, residual, codes)
            total = total + chosen
            residual = residual - chosen
        return latent + (total - latent).detach(), commitment / levels

    def _learn(self, level: int, vectors: Tensor, codes: Tensor) -> None:
        sums, sizes = self._assign(vectors, codes)
        self.sizes[level].mul_(DECAY).add_(sizes, alpha=1 - DECAY)
        self.sums[level].mul_(DECAY).add_(sums, alpha=1 - DECAY)
        dead = self.sizes[level] < DEAD_BELOW
        if dead.any():
            born = torch.randint(len(vectors), (int(dead.sum()),), generator=self.generator)
            self.sizes[level, dead] = 1.0
            self.sums[level, dead] = vectors[born.to(vectors.device)]
        self.books[level].copy_(self.sums[level] / self.sizes[level][:, None].clamp(min=1e-5))

    def _assign(self, vectors: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        count = self.books.shape[1]
        sums = torch.zeros_like(self.sums[0]).index_add_(0, codes, vectors)
        return sums, torch.bincount(codes, minlength=count).float()
