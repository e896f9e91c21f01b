"""Which phoneme each frame of an utterance speaks, from the attention of level 0."""

import numpy as np
from torch import Tensor

from app.engine.job import Alignment
from app.engine.utterance import UtteranceSpec
from models.alignment.attention import TextAttention
from models.alignment.path import MonotonicPath
from models.prefix_cache import PrefixCache, Read, SlotPrefix, one_by_one
from models.valle import Valle


class UtteranceAlignment:
    """Aligns the frames of one utterance as they come, a chunk at a time; see `TextAttention`."""

    def __init__(
        self, model: Valle, inputs: UtteranceSpec, prefixes: PrefixCache, read: Read | None = None
    ) -> None:
        head = model.config.alignment
        assert head is not None, "refused by the planner"
        read = read or one_by_one(model, [head.layer])
        prefix = inputs.prefix(model, 0)
        cache = prefixes.new_cache(1, len(prefix) + inputs.max_frames)
        prefixes.begin([SlotPrefix(prefix, 0, inputs.voice)], cache, read)
        symbols = len(inputs.phoneme_ids)
        text = slice(prefix.text_start, prefix.text_start + symbols)
        self._attention = TextAttention(model, prefix, cache, 0, read, text=text)
        self._path = MonotonicPath(symbols)

    def push(self, ar_codes: Tensor) -> Alignment:
        """Align the next frames ``[n]`` int64; n may be 0."""
        if not len(ar_codes):
            return Alignment(np.zeros(0, np.int64), np.zeros(0, np.float32))
        attention, logprobs = self._attention.push(ar_codes.cpu())
        return Alignment(self._path.push(attention.cpu().numpy()), logprobs.cpu().numpy())
