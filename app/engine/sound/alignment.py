"""Which phoneme each frame of an utterance speaks, from the attention of level 0."""

import numpy as np
from torch import Tensor

from app.engine.job import Alignment
from app.engine.utterance import UtteranceInput
from models.alignment.attention import TextAttention
from models.alignment.path import MonotonicPath
from models.prefix_cache import PrefixCache, SlotPrefix, one_by_one
from models.valle import Valle


class UtteranceAlignment:
    """Aligns the frames of one utterance as they come, a chunk at a time."""

    def __init__(self, model: Valle, inputs: UtteranceInput, prefixes: PrefixCache) -> None:
        head = model.config.alignment
        assert head is not None, "refused by the planner"
        prefix = inputs.prefix(model, 0)
        cache = prefixes.new_cache(1, len(prefix) + inputs.max_frames)
        wanted = [SlotPrefix(prefix, 0, inputs.voice)]
        (rest,) = prefixes.begin(wanted, cache, one_by_one(model))
        symbols = len(inputs.phoneme_ids)
        text = slice(prefix.text_start, prefix.text_start + symbols)
        self._attention = TextAttention(model, prefix, rest, cache, text=text, head=head)
        self._path, self._device = MonotonicPath(symbols), model.separator.device

    def push(self, level_0: Tensor) -> Alignment:
        """Align the next frames ``[n]`` int64; n may be 0."""
        if not len(level_0):
            return Alignment(np.zeros(0, np.int64), np.zeros(0, np.float32))
        attention, logprobs = self._attention.push(level_0.to(self._device))
        return Alignment(self._path.push(attention.cpu().numpy()), logprobs.cpu().numpy())
