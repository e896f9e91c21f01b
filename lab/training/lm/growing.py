"""Text that grows while it is spoken, as rows of level 0 are trained on it.

A listener's sentence may still be being written when its first words are spoken. The model then
draws each frame from the words up to a few past the one that it is in, its *look-ahead*, and the
text grows as it goes on. All of an utterance's growths are trained in one pass by a mask: the
position that predicts a frame sees the words that were known when that frame was drawn, and the end
mark only once the last word is among them. The separator behind the text stands, and sees, where
the text ended at first. Frames are aligned with words once, by the model's own alignment head.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.training.lm.codes import CodedUtterance
from models.alignment.attention import TextAttention
from models.alignment.path import MonotonicPath
from models.prefix import Prefix
from models.prefix_cache import one_by_one
from models.stack.taps import Taps
from models.valle import Valle

LOOK_AHEADS: Final = (1, 2, 2, 3, 4)
"""Words; drawn from with equal odds."""


@dataclass(frozen=True)
class KnownText:
    """What was known of a text when each frame was drawn."""

    unseen: NDArray[np.bool_]
    """``[T + 1, S]``: the symbols that were not known when a frame, or the stop, was drawn."""

    @property
    def first_symbols(self) -> int:
        """How many symbols, but for the end mark, were known at first."""
        return int((~self.unseen[0]).sum())


def words_of_symbols(phonemes: str) -> NDArray[np.int64]:
    """Return the number of the word that each symbol ``[S]`` is in, begin and end mark included.

    A space belongs to the word before which it stands.
    """
    spaces = [0, *(symbol == " " for symbol in phonemes), 0]
    return np.cumsum(np.array(spaces, np.int64))


def known_text(
    words_of_frames: NDArray[np.int64], words: NDArray[np.int64], look_ahead: int
) -> KnownText:
    """Return what is known of a text whose symbols are in ``words`` ``[S]``.

    When frame j is drawn, the last word known is ``look_ahead`` behind the furthest that a frame
    before it was in; ``words_of_frames`` ``[T]``.
    """
    last = int(words[-1])
    reached = np.maximum.accumulate(np.concatenate([[0], words_of_frames])) + look_ahead
    unseen = words[None] > reached[:, None]
    unseen[:, -1] = reached < last  # the end mark comes with the last word
    return KnownText(unseen)


class FrameWords:
    """Which word each frame of an utterance is in, by a model's alignment head; found once."""

    def __init__(self, model: Valle) -> None:
        if model.config.alignment is None:
            raise ValueError("this model has no alignment head")
        self._model = model
        self._read = one_by_one(model, Taps(queries=[model.config.alignment.layer]))
        self._found: dict[tuple[str, str], NDArray[np.int64]] = {}

    @torch.inference_mode()
    def of(self, utterance: CodedUtterance) -> NDArray[np.int64]:
        """Return the numbers of words ``[T]``."""
        key = utterance.speaker, utterance.text
        if key not in self._found or len(self._found[key]) != len(utterance.codes):
            ids = utterance.phoneme_ids
            prefix = self._model.prefix(ids, 0)
            cache = self._model.new_cache(1, len(prefix) + len(utterance.codes) + 1)
            text = slice(prefix.text_start, prefix.text_start + len(ids))
            attention = TextAttention(self._model, prefix, cache, 0, self._read, text=text)
            codes = torch.from_numpy(utterance.codes[:, 0].astype(np.int64))
            path = MonotonicPath(len(ids)).push(attention.push(codes)[0].cpu().numpy())
            self._found[key] = words_of_symbols(utterance.phonemes)[path]
        return self._found[key]


def mask_of(known: KnownText, prefix: Prefix, frames: int) -> tuple[Tensor, Tensor]:
    """Return what positions do not attend to ``[S + T, S + T]``, and their positions ``[S + T]``.

    Of a prefix of S, in which the text and one separator come last, and T frames of level 0. The
    separator predicts the first frame.
    """
    device, length = prefix.positions.device, len(prefix)
    text = slice(prefix.text_start, length - 1)
    unseen = torch.zeros(length + frames, length + frames, dtype=torch.bool, device=device)
    unseen[length - 1 :, text] = torch.from_numpy(known.unseen).to(device)
    positions = torch.cat([prefix.positions, torch.arange(frames, device=device)])
    if known.unseen[0].any():
        positions[length - 1] = prefix.positions[prefix.text_start] + known.first_symbols
    return unseen, positions
