"""How a language model begins: small, or on a new codec with what another learned on an old one.

The stack needs no change: what it hears and what it says are vectors. Only their tables and heads
belong to codes. The same speech in both codecs tells which old codes stand where a new one does: a
new code begins with the mean of their vectors.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.training.cache import cache_folder
from lab.training.lm.codes import trimmed
from lab.training.speech.corpus import Corpus
from models.codecs.interface import Codec
from models.valle import Valle

# How many frames later EnCodec's causal encoder tells what the spectral codec's frame, which hears
# what follows it, tells: measured, by how much of the old vectors the new codes explain (0 frames
# 9 %, 1 11 %, 2 16 %, 3 20 %, 4 16 %, 5 12 %).
DELAY_FRAMES = 3


@dataclass(frozen=True)
class Parallel:
    """The same frames in both codecs: ``[N, K]`` int64 each."""

    old: Tensor
    new: Tensor


def some_speech(corpora: Sequence[str], count: int) -> Iterator[NDArray[np.float32]]:
    """Yield samples of the last utterances of those corpora that are in the cache."""
    for name in corpora:
        if (cache_folder() / name).is_dir():
            corpus = Corpus(cache_folder(), name)
            for utterance in corpus.utterances[-count // len(corpora) :]:
                yield trimmed(corpus.samples(utterance))


@torch.inference_mode()
def parallel_codes(
    speech: Iterable[NDArray[np.float32]], old: Codec, new: Codec, delay: int = DELAY_FRAMES
) -> Parallel:
    """Encode utterances ``[N]`` with both codecs, which must have one frame rate."""
    olds, news = [], []
    for samples in speech:
        before, after = (codec.encode(torch.from_numpy(samples)) for codec in (old, new))
        count = min(len(before) - delay, len(after))
        olds.append(before[delay : delay + count])
        news.append(after[:count])
    return Parallel(torch.cat(olds), torch.cat(news))


def sources(levels: int, old_levels: int) -> list[int]:
    """Return for each level the old one that was told about as much: with fewer, every second."""
    if levels >= old_levels:
        return [min(level, old_levels - 1) for level in range(levels)]
    return [0, *(min(old_levels - 1, 2 ** (level - 1)) for level in range(1, levels))]


@torch.inference_mode()
def translate(old: Valle, new: Valle, codes: Parallel) -> None:
    """Give ``new`` the stack of ``old``, and means of its vectors for every code.

    Both must be of one width, depth and phonemes, with shared tables.
    """
    kept = {
        name: value
        for name, value in old.state_dict().items()
        if not name.startswith(("response.", "heads.", "level."))
    }
    new.load_state_dict(kept, strict=False)
    told = sources(new.config.levels, old.config.levels)
    own = old.response[0].weight
    new.response[0].weight.copy_(_means(own[codes.old[:, 0]], codes.new[:, 0], own))
    # Level q hears a sum of tables: each adds what the sum of old tables has more by then.
    difference = torch.zeros(len(codes.old), old.config.width)
    for level in range(new.config.levels - 1):
        for before in range(told[level], told[level + 1]):
            difference += old.response[1 + before].weight[codes.old[:, before]]
        table = new.response[1 + level].weight
        table.copy_(_means(difference, codes.new[:, level], table))
        difference -= table[codes.new[:, level]]
    for level, source in enumerate(told):
        new.level.weight[level] = old.level.weight[source]
        said, mine = codes.old[:, source], codes.new[:, level]
        old_head, head = old.heads[source], new.heads[level]
        assert isinstance(old_head, nn.Linear)
        assert isinstance(head, nn.Linear)
        head.weight.copy_(_means(old_head.weight[said], mine, old_head.weight))
        bias = _means(old_head.bias[said, None], mine, old_head.bias[:, None])
        head.bias.copy_(bias[:, 0])


def _means(vectors: Tensor, codes: Tensor, otherwise: Tensor) -> Tensor:
    """Return the mean of ``vectors`` ``[N, D]`` of each code."""
    count = len(otherwise)
    sums = torch.zeros(count, vectors.shape[1]).index_add_(0, codes, vectors)
    times = codes.bincount(minlength=count)[:, None]
    return torch.where(times > 0, sums / times.clamp(min=1), otherwise)


def initialise(model: Valle) -> None:
    """Start small: every block begins as the identity, every head as nearly uniform."""
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if name.endswith((
            "attention.out.weight",
            "feed_forward.down.weight",
            "prompt_rest.weight",
        )):
            nn.init.zeros_(parameter)
        else:
            linear = "transformer" in name or "heads" in name
            nn.init.normal_(parameter, std=0.03 if linear else 0.3)
    nn.init.normal_(model.separator, std=0.3)
