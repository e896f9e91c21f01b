"""The transformer stack: pre-norm blocks over vectors, with and without a KV cache.

By default those of Llama (Touvron et al. 2023, arXiv:2302.13971); `BlockSpec` has what may differ.
One set of weights serves three passes: `forward` over
whole sequences (training, and the reference that the others are tested against), `extend` by many
positions of one slot, `step` by one position of many slots.

The attention mask is data: every position has a *rank* and attends to the positions whose rank is
not greater than its own. Consecutive ranks are causal, one rank a block is block-causal, equal
ranks are full attention.

Input and output are vectors; phonemes, codes and output heads belong to `models.valle`.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Self, cast

import torch
from torch import Tensor, nn

from gpu.kernels import FUSED
from models.config import ModelConfig
from models.cuda.kernels.reference import attend_grouped
from models.stack.batching import UNPADDED, Batching, RowFunction, measure_batching
from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache
from models.stack.paged_cache import PagedCache, PagePool
from models.stack.paged_passes import PagedPasses
from models.stack.slot_cache import CachedPasses, SlotCache
from models.stack.taps import NO_TAPS, Taps, chosen, with_outputs

MAX_POSITIONS = 8192
PADDING_RANK = torch.iinfo(torch.int32).max


class Transformer(nn.Module):
    """The blocks and the final norm; `kernels` says which of passes over pages are fused."""

    cos: Tensor
    sin: Tensor
    rotations: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.blocks = cast("Sequence[Block]", blocks)
        self.norm = RmsNorm(config.width, config.norm_eps)
        self.kernels = FUSED
        self._passes: CachedPasses | None = None
        self._batching: Batching | None = None
        half = config.head_dim // 2
        if added := config.block.positions == "added":
            cos = torch.ones(1, half).expand(2 * MAX_POSITIONS, half)
            sin = torch.zeros(1, half).expand(2 * MAX_POSITIONS, half)
        else:
            frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
            angles = torch.arange(MAX_POSITIONS, dtype=torch.float64)[:, None] * frequencies
            cos = angles.cos().float()
            sin = angles.sin().float()
        self.register_buffer("cos", torch.cat([cos, cos], 1), persistent=False)
        self.register_buffer("sin", torch.cat([-sin, sin], 1), persistent=False)
        self.register_buffer("rotations", torch.complex(cos, sin)[:, None], persistent=False)
        self.entry = AddedPositions(config.width) if added else None

    def entered(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return vectors ``[..., D]`` with what is added for their positions ``[...]``, if any."""
        return x if self.entry is None else self.entry(x, positions)

    def with_own_gains(self) -> Self:
        """Return a stack of the same matrices, of which norms and what follows them are its own."""
        shared: list[object] = [self.entry, self.cos, self.sin, self.rotations]
        for block in self.blocks:
            for linear in (block.attention.out, block.feed_forward.down):
                shared += linear.parameters()
            shared += [block.attention.qkv.weight, block.feed_forward.gate_up.weight]
        return deepcopy(self, {id(one): one for one in shared})

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        ranks: Tensor | None = None,
        unseen: Tensor | None = None,
    ) -> Tensor:
        """Run whole sequences without a cache: ``[B, S, D]`` after the final norm.

        Args:
            x: ``[B, S, D]``, right-padded.
            positions: ``[B, S]`` int64, below `MAX_POSITIONS`, but see `entered`.
            ranks: ``[B, S]`` int: i attends to j where ``ranks[j] <= ranks[i]``. Padding has
                `PADDING_RANK`. None: causal, which hides padding because it comes last.
            unseen: ``[B, S, S]`` bool: where true, i does not attend to j whatever their ranks.
        """
        if ranks is None:
            ranks = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        hidden = (ranks[:, None] > ranks[:, :, None])[:, None]
        if unseen is not None:
            hidden = hidden | unseen[:, None]
        bias = torch.zeros(hidden.shape, device=x.device).masked_fill(hidden, -torch.inf)
        x = self.entered(x, positions)
        cos = self.cos[positions]
        sin = self.sin[positions]
        for block in self.blocks:
            x = block(x, cos, sin, bias)
        return self.norm(x)

    def use_passes(self, passes: CachedPasses) -> None:
        """Delegate `new_cache` and the passes over such caches to others from now on."""
        self._passes = passes

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty cache of so many sequences of at most ``max_length`` positions."""
        if self._passes is not None:
            return self._passes.new_cache(slots, max_length)
        dtype = self.norm.weight.dtype
        device = self.norm.weight.device
        return KVCache(self.config, slots, max_length, dtype=dtype, device=device)

    def paged(self, pool: PagePool) -> PagedPasses:
        """Return the passes over the sequences of a pool."""
        return PagedPasses(self.blocks, self.norm, self.rotations, pool, self.kernels)

    @property
    def depends_on_batch(self) -> bool:
        """Whether a row's bits may depend on its batch: of floats on a CPU; a GPU promises none."""
        return self._passes is None and self.norm.weight.device.type == "cpu"

    @property
    def batching(self) -> Batching:
        """How the rows of a step are batched; measured on first use, for the threads set then."""
        if not self.depends_on_batch:
            return UNPADDED
        if self._batching is None:
            block = self.blocks[0]
            width = block.attention.heads * block.attention.head_dim
            layers: list[tuple[RowFunction, int]] = [
                (lambda x: block.attention.qkv(block.attention_norm(x)), width),
                (block.attention.out, width),
                (lambda x: block.feed_forward(block.feed_forward_norm(x)), width),
            ]
            self._batching = measure_batching(layers, self.norm.weight.dtype)
        return self._batching

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slot: int,
        ranks: Tensor | None = None,
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append vectors ``x [S, D]`` to a slot, as `CachedPasses.extend`.

        Each, at ``positions [S]`` int64, attends to everything that the slot held before, and among
        the new ones by ``ranks [S]`` int, in pages none less than the one before; None: to all.
        """
        mask = None
        if ranks is not None and len(x) > 1:
            past = torch.ones(len(x), cache.lengths[slot], dtype=torch.bool, device=x.device)
            mask = torch.cat([past, ranks[None] <= ranks[:, None]], 1)
        x = self.entered(x, positions)
        if isinstance(cache, PagedCache):
            return self.paged(cache.pool).extend(x, positions, cache, slot, mask, taps)
        if self._passes is not None:
            return self._passes.extend(x, positions, cache, slot, mask, taps)
        cache = _as_kv_cache(cache)
        rotations = self.rotations[positions]
        visible = None if mask is None else mask[None]
        asked: list[Tensor] = []
        outputs: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_complex(block.attention_norm(x), rotations)
            cached = cache.write(number, slot, keys.transpose(0, 1), values.transpose(0, 1))
            x = x + attention.out(attend_grouped(queries, *cached, visible))
            x = x + block.feed_forward(block.feed_forward_norm(x))
            asked.append(queries)
            if number in taps.outputs:
                outputs.append(x)
        cache.advance(slot, len(x))
        return with_outputs(self.norm(x), outputs), chosen(asked, taps.queries)

    def step(
        self,
        x: Tensor,
        positions: Tensor,
        cache: SlotCache,
        slots: Sequence[int],
        taps: Taps = NO_TAPS,
    ) -> tuple[Tensor, Tensor]:
        """Append a vector ``x [B, D]`` to each of B distinct slots, as `CachedPasses.step`.

        Not to pages, of which steps are captured: see `models.stack.paged_passes`.
        """
        x = self.entered(x, positions)
        if self._passes is not None:
            return self._passes.step(x, positions, cache, slots, taps)
        cache = _as_kv_cache(cache)
        parts = [
            self._step_block(x[part], positions[part], cache, slots[part], taps)
            for part in self.batching.blocks(len(x))
        ]
        if len(parts) == 1:
            return parts[0]
        hidden, queries = zip(*parts, strict=True)
        return torch.cat(hidden), torch.cat(queries, 1)

    def _step_block(
        self,
        x: Tensor,
        positions: Tensor,
        cache: KVCache,
        slots: Sequence[int],
        taps: Taps,
    ) -> tuple[Tensor, Tensor]:
        """As `step`, for the rows of one block of `batching`."""
        count = len(x)
        batching = self.batching
        x = batching.pad(x)
        places = cache.grow(slots)
        rotations = self.rotations[positions]
        asked: list[Tensor] = []
        outputs: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_complex(block.attention_norm(x), rotations)
            cache.put(number, places, keys, values)
            attended = attention.attend_each(queries, [cache.rows(number, slot) for slot in slots])
            x = x + attention.out(batching.pad(attended))
            x = x + block.feed_forward(block.feed_forward_norm(x))
            asked.append(queries[:count])
            if number in taps.outputs:
                outputs.append(x[:count])
        return with_outputs(self.norm(x[:count]), outputs), chosen(asked, taps.queries)


class AddedPositions(nn.Module):
    """Position vectors that are added on entry to a stack, of a text and of frames.

    Those of Vaswani et al. 2017, arXiv:1706.03762, sines and cosines by turns. The mean of each is
    taken off, as all that such a stack reads is centred.

    Attributes:
        scales: ``[2]``, what those of frames and of a text are multiplied by.
    """

    rows: Tensor
    scales: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        # In float32, as models were trained with: in float64 row 4000 differs by 2e-4.
        places = torch.arange(MAX_POSITIONS, dtype=torch.float32)[:, None]
        even = torch.arange(0, width, 2, dtype=torch.float32)
        angles = places * torch.exp(even * -(math.log(10_000) / width))
        made = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).double()
        rows = (made - made.mean(1, keepdim=True)).float()
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("scales", torch.ones(2))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add those of ``positions`` ``[...]`` to vectors ``[..., D]``.

        Ids from `MAX_POSITIONS` on are those of a text, counted from there.
        """
        scales = self.scales[positions // MAX_POSITIONS, None]
        return (x + self.rows[positions % MAX_POSITIONS] * scales).to(x.dtype)


def _as_kv_cache(cache: SlotCache) -> KVCache:
    if not isinstance(cache, KVCache):
        raise ValueError("a float stack needs a KVCache: see Transformer.new_cache")
    return cache
