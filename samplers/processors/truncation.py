"""Processors that decide which codes may be sampled: the truncation filters, and XTC."""

import math

import torch

from samplers.ops import filters
from samplers.ops.sample import NoiseStream
from samplers.processors.processor import BatchParams, LogitsProcessor, Scores


class TopNSigma(LogitsProcessor):
    """Keeps codes within some standard deviations of the best logit."""

    features = ("top_n_sigma",)

    def __init__(self, batch: BatchParams) -> None:
        self._n = batch.knob("top_n_sigma", math.inf)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.top_n_sigma_floor(scores.logits, self._n))


class TopK(LogitsProcessor):
    """Keeps the k likeliest codes."""

    features = ("top_k", "entropix")

    def __init__(self, batch: BatchParams) -> None:
        self._k = batch.knob("top_k", batch.vocab_size)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        k = scores.knob("top_k", self._k).long()
        scores.keep_from(filters.top_k_floor(scores.ordered, k))


class TopP(LogitsProcessor):
    """Keeps the likeliest codes up to a total probability."""

    features = ("top_p", "entropix")

    def __init__(self, batch: BatchParams) -> None:
        self._p = batch.knob("top_p", math.inf)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.top_p_floor(scores.ordered, scores.knob("top_p", self._p)))


class MinP(LogitsProcessor):
    """Keeps codes at least so likely, compared with the best; at least `min_tokens_to_keep`."""

    features = ("min_p", "entropix")

    def __init__(self, batch: BatchParams) -> None:
        self._p = batch.knob("min_p", 0.0)
        self._keep = batch.column([p.min_tokens_to_keep for p in batch.params])
        self._keeps_several = any(p.min_tokens_to_keep > 1 for p in batch.params)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        floor = filters.min_p_floor(scores.best, scores.knob("min_p", self._p))
        if self._keeps_several:
            floor = torch.minimum(floor, filters.top_k_floor(scores.ordered, self._keep))
        scores.keep_from(floor)


class PLess(LogitsProcessor):
    """Keeps codes at least as likely as two samples are to be equal."""

    features = ("p_less",)

    def __init__(self, batch: BatchParams) -> None:
        self._acts = batch.knob("p_less", 0)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.p_less_floor(scores.logits, self._acts))


class TypicalP(LogitsProcessor):
    """Keeps the codes whose surprise is nearest to the entropy, up to a total probability."""

    features = ("typical_p",)

    def __init__(self, batch: BatchParams) -> None:
        self._p = batch.knob("typical_p", math.inf)
        self._protected = batch.protected

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.replace(filters.typical(scores.logits, self._p, self._protected))


class EpsilonCutoff(LogitsProcessor):
    """Keeps codes above a probability."""

    features = ("epsilon_cutoff",)

    def __init__(self, batch: BatchParams) -> None:
        self._epsilon = batch.knob("epsilon_cutoff", 0.0)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.epsilon_floor(scores.logits, self._epsilon))


class EtaCutoff(LogitsProcessor):
    """Keeps codes above a probability that falls with the entropy."""

    features = ("eta_cutoff",)

    def __init__(self, batch: BatchParams) -> None:
        self._eta = batch.knob("eta_cutoff", 0.0)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.eta_floor(scores.logits, self._eta))


class Xtc(LogitsProcessor):
    """XTC: by chance, excludes all likely codes but the least likely of them."""

    features = ("xtc_probability",)

    def __init__(self, batch: BatchParams) -> None:
        self._probability = batch.knob("xtc_probability", 0.0)
        self._threshold = batch.column([p.xtc_threshold for p in batch.params])
        self._protected = batch.protected

    def __call__(self, scores: Scores) -> None:
        """Toss the coin of each row, and filter where it says so."""
        acts = scores.noise(NoiseStream.XTC, 1) < self._probability
        scores.replace(filters.xtc(scores.logits, self._threshold, acts, self._protected))
