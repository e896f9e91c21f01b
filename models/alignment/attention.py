"""How much each frame of level 0 attends to each phoneme, in one head of one layer."""

import torch
from torch import Tensor

from gpu.transfers import to_device
from models.prefix import Prefix
from models.prefix_cache import Read
from models.stack.slot_cache import SlotCache
from models.valle import Valle


class TextAttention:
    """Feeds known frames of level 0 to a model and gives their attention to the text.

    Args:
        prefix: Whose first positions, not all, may be in the slot already.
        read: Gives last the queries of the layer of the alignment head, which there must be.
        text: The positions of the symbols that frames attend to.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Valle,
        prefix: Prefix,
        cache: SlotCache,
        slot: int,
        read: Read,
        *,
        text: slice,
    ) -> None:
        head = model.config.alignment
        assert head is not None
        self._model = model
        self._read = read
        self._place = (cache, slot)
        self._head = head.head
        self._layer = head.layer
        ((hidden, asked),) = read([prefix[cache.lengths[slot] :]], [self._place])
        self.read_keys(text)
        # Which predict the next frame
        self._hidden = hidden[-1:].clone()
        self._queries = asked[-1, -1:].clone()
        self._at = prefix.response_start

    def read_keys(self, text: slice) -> None:
        """Attend from now on to the symbols that the slot has at some positions."""
        cache, slot = self._place
        config = self._model.config
        group = config.heads // config.kv_heads
        self._keys = cache.keys_of(self._layer, slot)[self._head // group, text].float().clone()

    @torch.inference_mode()
    def push(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Take the next frames, ``[n]`` int64 of level 0, on the host.

        Returns attention ``[n, S]`` float32 of what predicted each frame, its share of the text
        alone, and the log-probability ``[n]`` of each frame in nats.
        """
        frames = self._model.frames(codes, self._at)
        ((hidden, asked),) = self._read([frames], [self._place])
        self._at += len(codes)
        hidden = torch.cat([self._hidden, hidden])
        queries = torch.cat([self._queries, asked[-1]])
        self._hidden = hidden[-1:]
        self._queries = queries[-1:]
        query = queries[:-1, self._head].float()
        attention = (query @ self._keys.T * query.shape[-1] ** -0.5).softmax(-1)
        last = hidden[:-1, : self._model.config.width]  # what else was asked of is behind it
        logits = self._model.logits(last, 0).log_softmax(-1)
        sampled = to_device(codes.numpy(), logits.device)
        return attention, logits.gather(1, sampled[:, None])[:, 0]
