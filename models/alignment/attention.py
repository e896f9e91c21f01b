"""How much each frame of level 0 attends to each phoneme, in one head of one layer."""

import torch
from torch import Tensor

from models.config import AlignmentHead
from models.prefix import Prefix
from models.stack.slot_cache import SlotCache
from models.valle import Valle


class TextAttention:
    """Feeds known frames of level 0 to a model and gives their attention to the text.

    ``rest`` is the part of the prefix that is not in the slot yet: not empty. ``text`` are the
    positions of the symbols that frames attend to.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Valle,
        prefix: Prefix,
        rest: Prefix,
        cache: SlotCache,
        slot: int = 0,
        *,
        text: slice,
        head: AlignmentHead,
    ) -> None:
        self._model, self._cache, self._slot, self._head = model, cache, slot, head
        ranks = model.ranks(0, rest.blocks)
        hidden, queries = model.transformer.extend(
            rest.embeddings, rest.positions, cache, slot, ranks, head.layer
        )
        keys = cache.keys_of(head.layer, slot)
        group = model.config.heads // model.config.kv_heads
        self._keys = keys[head.head // group, text].float()
        self._hidden, self._queries = hidden[-1:], queries[-1:]  # which predict the next frame
        self._at = prefix.response_start

    @torch.inference_mode()
    def push(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Take the next frames, ``[n]`` int64 of level 0, on the model's device.

        Returns attention ``[n, S]`` float32 of what predicted each frame, its share of the text
        alone, and the log-probability ``[n]`` of each frame in nats.
        """
        model, device = self._model, codes.device
        positions = torch.arange(self._at, self._at + len(codes), device=device)
        hidden, queries = model.transformer.extend(
            model.embed_response(codes[:, None], 0),
            positions,
            self._cache,
            self._slot,
            torch.arange(len(codes), device=device),
            self._head.layer,
        )
        self._at += len(codes)
        hidden, self._hidden = torch.cat([self._hidden, hidden[:-1]]), hidden[-1:]
        queries, self._queries = torch.cat([self._queries, queries[:-1]]), queries[-1:]
        query = queries[:, self._head.head].float()
        attention = (query @ self._keys.T * query.shape[-1] ** -0.5).softmax(-1)
        logits = model.logits(hidden, 0).log_softmax(-1)
        return attention, logits.gather(1, codes[:, None])[:, 0]
