"""Which phoneme each frame of an utterance speaks, from the attention of level 0."""

from collections import deque

import numpy as np
from torch import Tensor

from app.engine.results import Alignment
from app.engine.utterance import TextGrowth, UtteranceSpec
from models.alignment.attention import TextAttention
from models.alignment.path import MonotonicPath
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, Read, SlotPrefix, one_by_one
from models.stack.taps import Taps
from models.valle import Valle


class UtteranceAlignment:
    """Aligns the frames of one utterance as they come, a chunk at a time; see `TextAttention`.

    Attributes:
        growths: Of the text, that no frame was aligned with.
    """

    def __init__(
        self, model: Valle, inputs: UtteranceSpec, prefixes: PrefixCache, read: Read | None = None
    ) -> None:
        head = model.config.alignment
        assert head is not None, "refused by the planner"
        self._model = model
        self._inputs = inputs
        self._prefixes = prefixes
        self._read = read or one_by_one(model, Taps(queries=[head.layer]))
        prefix = inputs.prefix(model, 0)
        self._cache = prefixes.new_cache(1, len(prefix) + inputs.max_frames + inputs.spare)
        prefixes.begin([SlotPrefix(prefix, 0, inputs.voice)], self._cache, self._read)
        self._attention = TextAttention(
            model, prefix, self._cache, 0, self._read, text=_text(prefix, inputs)
        )
        self._path = MonotonicPath(len(inputs.phoneme_ids))
        self.growths = deque[TextGrowth]()
        self._grown = 0
        self._frames = 0

    def push(self, ar_codes: Tensor) -> Alignment:
        """Align the next frames ``[n]`` int64 in the text that the last was drawn with.

        n may be 0.
        """
        if not len(ar_codes):
            return Alignment(np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64))
        self._frames += len(ar_codes)
        self._grow()
        attention, logprobs = self._attention.push(ar_codes.cpu())
        path = self._path.push(attention.cpu().numpy())
        return Alignment(path, logprobs.cpu().numpy(), np.full(len(path), self._grown))

    def _grow(self) -> None:
        """Go on with as much of the text as the frames that have come were drawn with."""
        before = self._inputs
        while self.growths and self.growths[0].frame < self._frames:
            inputs = self._inputs.grown(self.growths.popleft())
            symbols = len(inputs.phoneme_ids)
            self._path.grow(symbols, self._inputs.places.indices_in(inputs.places), symbols)
            self._inputs = inputs
            self._grown += 1
        if self._inputs is before:
            return
        prefix = self._inputs.prefix(self._model, 0)
        old = len(before.prefix(self._model, 0))
        wanted = [SlotPrefix(prefix, 0, self._inputs.voice)]
        self._prefixes.replace(wanted, self._cache, self._read, old=old)
        self._attention.read_keys(_text(prefix, self._inputs))


def _text(prefix: Prefix, inputs: UtteranceSpec) -> slice:
    return slice(prefix.text_start, prefix.text_start + len(inputs.phoneme_ids))
