"""Rows of a batch: what each asks of the language model, and how far off its answer is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from lab.training.lm.codes import CodedUtterance
from lab.training.lm.growing import KnownText, mask_of
from models.config import BOS_ID, EOS_ID
from models.stack.transformer import PADDING_RANK
from models.valle import Valle

DRAWN_TEMPERATURE = 0.8  # near what speech is drawn at: 0.7, with guidance
DRAW_PASSES = 2  # each but the first sees what the one before it drew
PIECES_UP_TO = 4  # of other utterances that are joined to a prompt


@dataclass(frozen=True)
class Row:
    """One utterance and what is asked of it: ``level`` 0 is the AR's, ``prompt`` is ``[Tp, K]``.

    Of the codes that the row sees of its utterance, a share of ``corrupted`` is random, and of
    level 0 a share of ``drawn`` is what the model draws in their place. What was ``known`` of its
    text when each frame was drawn is all of it, or grows (`lab.training.lm.growing`), at level 0
    alone.
    """

    utterance: CodedUtterance
    level: int
    prompt: NDArray[np.int16] | None = None
    null: bool = False
    corrupted: float = 0.0
    drawn: float = 0.0
    known: KnownText | None = None

    @property
    def positions(self) -> int:
        """How long its sequence is, roughly."""
        return self.utterance.positions + (0 if self.prompt is None else len(self.prompt))


class Prompts:
    """Pieces of other utterances of the same speaker, as they were said or as people record.

    Often several pieces are joined: what they then share is who speaks, not what is said, and
    people record single words, and words of other languages.
    """

    def __init__(
        self, utterances: Sequence[CodedUtterance], recorded: Sequence[CodedUtterance] = ()
    ) -> None:
        self._said, self._recorded = _by_speaker(utterances), _by_speaker(recorded)

    def draw(
        self,
        utterance: CodedUtterance,
        frames: int,
        random: np.random.Generator,
        recorded: float = 0.0,
        pieces: int = 1,
    ) -> NDArray[np.int16] | None:
        """Return at most ``frames`` ``[Tp, K]`` in the voice of ``utterance``, not from it.

        In a share of ``recorded`` it is a recording, where the speaker has one; so many
        ``pieces`` of one length are joined.
        """
        others: list[CodedUtterance] = []
        if random.random() < recorded:
            recordings = self._recorded.get(utterance.speaker, [])
            others = _any_but(recordings, lambda one: one.text == utterance.text, pieces, random)
        if not others:
            said = self._said[utterance.speaker]
            others = _any_but(said, lambda one: one is utterance, pieces, random)
        if not others:
            return None
        length = frames // pieces
        found = []
        for number in range(pieces):
            codes = others[number % len(others)].codes
            start = int(random.integers(0, max(1, len(codes) - length + 1)))
            found.append(codes[start : start + length])
        return np.concatenate(found)


def _any_but(
    utterances: Sequence[CodedUtterance],
    unwanted: Callable[[CodedUtterance], bool],
    count: int,
    random: np.random.Generator,
) -> list[CodedUtterance]:
    """Return at most ``count`` that are not unwanted, from a random one on."""
    first = int(random.integers(max(1, len(utterances))))
    turned = chain(islice(utterances, first, None), islice(utterances, first))
    return list(islice((one for one in turned if not unwanted(one)), count))


def _by_speaker(utterances: Sequence[CodedUtterance]) -> dict[str, list[CodedUtterance]]:
    found: dict[str, list[CodedUtterance]] = {}
    for utterance in utterances:
        found.setdefault(utterance.speaker, []).append(utterance)
    return found


def losses_of(
    model: Valle, rows: list[Row], random: np.random.Generator
) -> tuple[Tensor, dict[int, tuple[float, float]]]:
    """Return the mean cross-entropy over all predicted codes, and loss and accuracy by level."""
    device = model.separator.device
    codes = [torch.from_numpy(row.utterance.codes.astype(np.int64)).to(device) for row in rows]
    seen = _with_draws(model, rows, codes, random)
    seen = [
        corrupt(one, row, model.config.codes, random) for one, row in zip(seen, rows, strict=True)
    ]
    hidden = predicting(model, rows, seen)
    total, count, by_level = hidden[0].new_zeros(()), 0, {}
    for level in sorted({row.level for row in rows}):
        of_level = [index for index, row in enumerate(rows) if row.level == level]
        wanted = torch.cat([_target(model, rows[index], codes[index]) for index in of_level])
        logits = model.logits(torch.cat([hidden[index] for index in of_level]), level).float()
        loss = F.cross_entropy(logits, wanted, reduction="sum")
        total, count = total + loss, count + len(wanted)
        accuracy = (logits.argmax(-1) == wanted).float().mean()
        by_level[level] = (loss.item() / len(wanted), accuracy.item())
    return total / count, by_level


def _target(model: Valle, row: Row, codes: Tensor) -> Tensor:
    """Return what a row is to predict: ``[T]``, at level 0 ``[T + 1]`` with the stop."""
    target = codes[:, row.level]
    return F.pad(target, (0, 1), value=model.config.stop_token) if row.level == 0 else target


def predicting(
    model: Valle, rows: Sequence[Row], seen: Sequence[Tensor], layers: Sequence[int] = ()
) -> list[Tensor]:
    """Return the hidden states ``[T, D]`` that predict each row's target.

    Behind them in ``[T, (1 + L) * D]`` stand what ``layers`` gave, before the final norm. Of codes
    ``[T, K]`` each row sees those in ``seen``.
    """
    device = model.separator.device
    embeddings, positions, ranks, spans = [], [], [], []
    unseen: list[Tensor | None] = []
    for row, codes in zip(rows, seen, strict=True):
        ids = [BOS_ID, EOS_ID] if row.null else row.utterance.phoneme_ids
        prompt = None
        if row.prompt is not None:
            prompt = torch.from_numpy(row.prompt.astype(np.int64)).to(device)
        prefix = model.prefix(ids, row.level, prompt=prompt)
        blocks = torch.cat([prefix.blocks, model.response_blocks(0, len(codes))])
        embeddings.append(torch.cat([prefix.embeddings, model.embed_response(codes, row.level)]))
        frames = torch.arange(len(codes), device=device)
        own, hidden_from = torch.cat([prefix.positions, frames]), None
        if row.known is not None and not row.null:
            hidden_from, own = mask_of(row.known, prefix, len(codes))
        positions.append(own)
        unseen.append(hidden_from)
        ranks.append(model.ranks(row.level, blocks))
        first = len(prefix) - (row.level == 0)  # the AR's first code is predicted by the prefix
        spans.append(slice(first, len(prefix) + len(codes)))
    pad = nn.utils.rnn.pad_sequence
    kept: list[Tensor] = []
    taps = [
        model.transformer.blocks[layer].register_forward_hook(lambda *given: kept.append(given[-1]))
        for layer in layers
    ]
    hidden = model.transformer(
        pad(embeddings, batch_first=True),
        pad(positions, batch_first=True),
        pad(ranks, batch_first=True, padding_value=PADDING_RANK),
        _stacked(unseen, max(map(len, positions)), device),
    )
    for tap in taps:
        tap.remove()
    hidden = torch.cat([hidden, *kept], -1)
    return [hidden[index, span] for index, span in enumerate(spans)]


def _stacked(masks: Sequence[Tensor | None], length: int, device: torch.device) -> Tensor | None:
    """Return masks ``[B, length, length]`` of rows, of which some have none; None if no row has."""
    if all(mask is None for mask in masks):
        return None
    found = torch.zeros(len(masks), length, length, dtype=torch.bool, device=device)
    for number, mask in enumerate(masks):
        if mask is not None:
            found[number, : len(mask), : len(mask)] = mask
    return found


@torch.no_grad()
def _with_draws(
    model: Valle, rows: Sequence[Row], codes: Sequence[Tensor], random: np.random.Generator
) -> list[Tensor]:
    """Return each row's codes ``[T, K]``, some of level 0 drawn by the model itself."""
    found = list(codes)
    drawing = [index for index, row in enumerate(rows) if row.drawn]
    if not drawing:
        return found
    # By another row's prompt and, from the second pass on, by draws before them: what a row then
    # sees of itself is no longer its speaker's, and its own prompt alone says who it is.
    asked = [
        replace(rows[index], level=0, prompt=rows[other].prompt, known=None)
        for index, other in zip(drawing, [*drawing[1:], drawing[0]], strict=True)
    ]
    generator = torch.Generator(codes[0].device).manual_seed(int(random.integers(2**62)))
    for _ in range(DRAW_PASSES):
        hidden = predicting(model, asked, [found[index] for index in drawing])
        for index, row, states in zip(drawing, asked, hidden, strict=True):
            logits = model.logits(states[:-1], 0).float()[:, : model.config.codes]  # no stop
            draws = (logits / DRAWN_TEMPERATURE).softmax(-1).multinomial(1, generator=generator)
            chosen = torch.from_numpy(random.random(len(draws)) < row.drawn).to(draws.device)
            level = torch.where(chosen, draws[:, 0], codes[index][:, 0])
            found[index] = torch.cat([level[:, None], codes[index][:, 1:]], dim=1)
    return found


def corrupt(codes: Tensor, row: Row, limit: int, random: np.random.Generator) -> Tensor:
    """Return codes ``[T, K]``, a share of the row replaced by random ones below ``limit``."""
    if not row.corrupted:
        return codes
    chosen = torch.from_numpy(random.random(tuple(codes.shape)) < row.corrupted).to(codes.device)
    other = torch.from_numpy(random.integers(0, limit, tuple(codes.shape)))
    return torch.where(chosen, other.to(codes.device), codes)
