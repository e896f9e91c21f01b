"""Rows of a batch: what each asks of the language model, and how far off its answer is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import BOS_ID, EOS_ID
from models.stack.transformer import PADDING_RANK
from models.valle import Valle
from training.lm.codes import CodedUtterance


@dataclass(frozen=True)
class Row:
    """One utterance and what is asked of it: ``level`` 0 is the AR's, ``prompt`` is ``[Tp, K]``."""

    utterance: CodedUtterance
    level: int
    prompt: NDArray[np.int16] | None = None
    null: bool = False
    corrupted: float = 0.0

    @property
    def positions(self) -> int:
        """How long its sequence is, roughly."""
        return self.utterance.positions + (0 if self.prompt is None else len(self.prompt))


class Prompts:
    """Pieces of other utterances of the same speaker."""

    def __init__(self, utterances: Sequence[CodedUtterance]) -> None:
        self._by_speaker: dict[str, list[CodedUtterance]] = {}
        for utterance in utterances:
            self._by_speaker.setdefault(utterance.speaker, []).append(utterance)

    def draw(
        self, utterance: CodedUtterance, frames: int, random: np.random.Generator
    ) -> NDArray[np.int16] | None:
        """Return at most ``frames`` ``[Tp, K]`` in the voice of ``utterance``, not from it."""
        others = self._by_speaker[utterance.speaker]
        if len(others) < 2:
            return None
        other = utterance
        while other is utterance:
            other = others[int(random.integers(len(others)))]
        start = int(random.integers(0, max(1, len(other.codes) - frames + 1)))
        return other.codes[start : start + frames]


def losses_of(
    model: Valle, rows: list[Row], random: np.random.Generator
) -> tuple[Tensor, dict[int, tuple[float, float]]]:
    """Return the mean cross-entropy over all predicted codes, and loss and accuracy by level."""
    device = model.separator.device
    embeddings, positions, ranks, spans, targets = [], [], [], [], []
    for row in rows:
        codes = torch.from_numpy(row.utterance.codes.astype(np.int64)).to(device)
        ids = [BOS_ID, EOS_ID] if row.null else row.utterance.phoneme_ids
        prompt = None
        if row.prompt is not None:
            prompt = torch.from_numpy(row.prompt.astype(np.int64)).to(device)
        prefix = model.prefix(ids, row.level, prompt=prompt)
        response = model.embed_response(_corrupt(codes, row, model.config.codes, random), row.level)
        frames = torch.arange(len(codes), device=device)
        blocks = torch.cat([prefix.blocks, model.response_blocks(0, len(codes))])
        embeddings.append(torch.cat([prefix.embeddings, response]))
        positions.append(torch.cat([prefix.positions, frames]))
        ranks.append(model.ranks(row.level, blocks))
        target = codes[:, row.level]
        if row.level == 0:
            target = F.pad(target, (0, 1), value=model.config.stop_token)
        targets.append(target)
        first = len(prefix) - (row.level == 0)  # the AR's first code is predicted by the prefix
        spans.append((first, first + len(target)))
    pad = nn.utils.rnn.pad_sequence
    hidden = model.transformer(
        pad(embeddings, batch_first=True),
        pad(positions, batch_first=True),
        pad(ranks, batch_first=True, padding_value=PADDING_RANK),
    )
    total, count, by_level = hidden.new_zeros(()), 0, {}
    for level in sorted({row.level for row in rows}):
        of_level = [index for index, row in enumerate(rows) if row.level == level]
        predicted = torch.cat([hidden[index, slice(*spans[index])] for index in of_level])
        wanted = torch.cat([targets[index] for index in of_level])
        logits = model.logits(predicted, level).float()
        loss = F.cross_entropy(logits, wanted, reduction="sum")
        total, count = total + loss, count + len(wanted)
        accuracy = (logits.argmax(-1) == wanted).float().mean()
        by_level[level] = (loss.item() / len(wanted), accuracy.item())
    return total / count, by_level


def _corrupt(codes: Tensor, row: Row, limit: int, random: np.random.Generator) -> Tensor:
    if not row.corrupted:
        return codes
    chosen = torch.from_numpy(random.random(tuple(codes.shape)) < row.corrupted).to(codes.device)
    other = torch.from_numpy(random.integers(0, limit, tuple(codes.shape)))
    return torch.where(chosen, other.to(codes.device), codes)
