"""The AR+NAR language model: segments of embeddings into the stack, logits out.

A sequence is a list of segments; between two of them stands one learned separator. Each segment
counts its positions from 0 and includes its trailing separator; the response comes last and has
none. Response frame i therefore always has position i, which makes a KV cache exact.

Level 0 is autoregressive (AR): causal, position i predicts frame i + 1, the last position before
the response predicts frame 0. Levels 1 and up are not (NAR): position i predicts frame i of its
level from the codes of lower levels. Some models can also draw level 0 in passes over all frames,
of which those still open are masked, and tell the number of frames beforehand, digit by digit.

It returns logits; it never draws a token.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from models.config import BOS_ID, EOS_ID, LENGTH_TOKENS, CodeSums, ModelConfig
from models.prefix import Prefix
from models.stack.batching import UNPADDED, Batching, measure
from models.stack.slot_cache import SlotCache
from models.stack.transformer import Transformer


class Valle(nn.Module):
    """Embeddings, stack and heads of one checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, codes, levels = config.width, config.codes, config.levels
        self.phonemes = nn.Embedding(EOS_ID + 1 + len(config.phonemes), width)
        self.languages = nn.Embedding(config.language_rows or len(config.languages), width)
        self.level = nn.Embedding(levels, width)
        self.separator = nn.Parameter(torch.zeros(width))
        # Table 0 is the AR's own and holds the stop token; table k + 1 is the NAR's for level k.
        response = nn.ModuleList(
            nn.Embedding(codes + (table == 0), width) for table in range(levels)
        )
        self.response = cast("Sequence[nn.Embedding]", response)
        own_tables = config.max_prompt_frames and not config.shared_tables
        prompt = nn.ModuleList(nn.Embedding(codes, width) for _ in range(levels * bool(own_tables)))
        self.prompt = cast("Sequence[nn.Embedding]", prompt)
        self.transformer = Transformer(config)
        self.heads = nn.ModuleList(
            nn.Linear(width, codes + (level == 0)) for level in range(levels)
        )
        self._level_0_batching: Batching | None = None
        if config.masked_level_0:
            self.masked_response = nn.Embedding(codes + 1, width)  # the last row is the mask
            self.masked_head = nn.Linear(width, codes)
            self.length_digits = nn.Embedding(LENGTH_TOKENS, width)
            self.length_head = nn.Linear(width, LENGTH_TOKENS)

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty cache as the stack's passes need it: where, and in what numbers.

        Args:
            slots: How many sequences.
            max_length: Positions that each has room for.
        """
        return self.transformer.new_cache(slots, max_length)

    def prefix(
        self,
        phoneme_ids: Sequence[int],
        level: int,
        *,
        language: int = 0,
        prompt: Tensor | None = None,
    ) -> Prefix:
        """Assemble everything before the response.

        Args:
            phoneme_ids: With the begin and end marks.
            level: Which level is to be predicted.
            language: Its index in ``config.languages``.
            prompt: ``[Tp, K]`` int64 codes of the voice, or None.

        Raises:
            ValueError: A prompt for a model that was trained without.
        """
        device = self.separator.device
        segments: dict[str, Tensor] = {
            "lang": self.languages.weight[min(language, self.languages.num_embeddings - 1), None],
            "level": self.level.weight[level, None],
            "phn": self.phonemes(torch.tensor(phoneme_ids, device=device)),
        }
        if prompt is not None and len(prompt):
            if not self.config.max_prompt_frames:
                raise ValueError("this model takes no voice prompt")
            tables = self.response[1:] if self.config.shared_tables else self.prompt
            segments["prom"] = self._embed(tables, prompt, level, self.config.prompt_sums)
        parts, positions, blocks = [], [], []
        total = before_words = 0
        for name in self.config.segments[:-1]:
            if name not in segments:
                continue
            if name == "phn":
                before_words = total
            parts += [segments[name], self.separator[None]]
            count = len(segments[name]) + 1
            total += count
            positions.append(torch.arange(count, device=device))
            blocks.append(torch.full((count,), int(name == "phn"), device=device))
        counted = torch.cat(positions)
        if self.config.unified_positions:
            counted = torch.arange(total, device=device)
        start = total if self.config.unified_positions else 0
        shared = before_words if self._words_are_unseen(level) else 0
        return Prefix(torch.cat(parts), counted, torch.cat(blocks), start, shared)

    def null_prefix(self, level: int, *, language: int = 0) -> Prefix:
        """Assemble the prefix that says nothing, no words and no prompt, for guidance.

        All of it is the same for every text. What level 0 predicts frame 0 from, its last position,
        is not shared, so that it is always read anew.
        """
        prefix = self.prefix([BOS_ID, EOS_ID], level, language=language)
        if level == 0:
            return replace(prefix, shared=len(prefix) - 1)
        return replace(prefix, shared=0 if self.config.nar_mask == "full" else len(prefix))

    def begin(self, prefix: Prefix, codes: Tensor) -> Prefix:
        """Return a prefix of level 0 after which the response has begun already.

        Args:
            prefix: Made for level 0.
            codes: ``[T]`` int64 of the frames before the first that is to be predicted.
        """
        start = prefix.response_start
        frames = torch.arange(start, start + len(codes), device=codes.device)
        return Prefix(
            torch.cat([prefix.embeddings, self.embed_response(codes[:, None], 0)]),
            torch.cat([prefix.positions, frames]),
            torch.cat([prefix.blocks, self.response_blocks(start, len(codes))]),
            start + len(codes),
        )

    def embed_response(self, codes: Tensor, level: int) -> Tensor:
        """Return the response's embeddings ``[T, D]`` as the given level sees it.

        Args:
            codes: ``[T, >= max(1, level)]`` int64; level 0 sees level 0, others those lower levels
                that ``config.response_sums`` says.
            level: The level to be predicted.
        """
        if level == 0:
            return self.response[0](codes[:, 0])
        return self._embed(self.response[1:], codes, level, self.config.response_sums)

    def response_blocks(self, start: int, count: int) -> Tensor:
        """Return the block-causal ranks ``[count]`` of response frames from ``start`` on."""
        frames = torch.arange(start, start + count, device=self.separator.device)
        return 2 + frames // self.config.block_frames

    def ranks(self, level: int, blocks: Tensor) -> Tensor:
        """Return who sees whom among positions, as ranks of the stack.

        Args:
            level: 0 is always causal; others as ``config.nar_mask`` says.
            blocks: ``[S]`` of the positions, from `Prefix.blocks` and `response_blocks`.
        """
        if level == 0:
            return torch.arange(len(blocks), device=blocks.device)
        return self._nar_ranks(blocks)

    def logits(self, hidden: Tensor, level: int) -> Tensor:
        """Return ``[..., V]`` of ``[..., D]``; level 0 has the stop token as its last entry.

        In float32 whatever the weights are in, as everything that is computed of logits.
        """
        head = self.heads[level]
        if hidden.ndim == 2:
            return self._head_batching(level).run(head, hidden).float()
        return head(hidden).float()

    def _head_batching(self, level: int) -> Batching:
        """Return how few rows go through the head of level 0, whose rows come from many jobs."""
        if level or not self.transformer.depends_on_batch:
            return UNPADDED
        if self._level_0_batching is None:
            self._level_0_batching = measure(
                [(self.heads[0], self.config.width)], self.separator.dtype
            )
        return self._level_0_batching

    def ar_logits(self, prefix: Prefix, codes: Tensor) -> Tensor:
        """Predict every frame of level 0 from those before it, in one pass, with no cache.

        Args:
            prefix: Made for level 0.
            codes: ``[T, >= 1]`` int64.

        Returns:
            ``[T + 1, V + 1]``: row i predicts frame i, the last what follows.
        """
        hidden = self._run(prefix, self.embed_response(codes, 0), None)
        return self.logits(hidden[len(prefix) - 1 :], 0)

    def nar_logits(self, prefix: Prefix, codes: Tensor, level: int, start: int = 0) -> Tensor:
        """Predict a level of some frames in one pass, with no cache.

        Args:
            prefix: Made for this level.
            codes: ``[T, >= level]`` int64.
            level: From 1 on.
            start: Index of the first frame; those before it are not seen.

        Returns:
            ``[T, V]``.
        """
        blocks = torch.cat([prefix.blocks, self.response_blocks(start, len(codes))])
        response = self.embed_response(codes, level)
        hidden = self._run(prefix, response, self.ranks(level, blocks), start)
        return self.logits(hidden[len(prefix) :], level)

    def masked_logits(self, prefix: Prefix, codes: Tensor) -> Tensor:
        """Predict level 0 at all frames from those that are known.

        Args:
            prefix: Made for level 0.
            codes: ``[T]`` int64, ``config.mask_token`` where open.

        Returns:
            ``[T, V]``; there is no stop among them.
        """
        blocks = torch.cat([prefix.blocks, self.response_blocks(0, len(codes))])
        hidden = self._run(prefix, self.masked_response(codes), self._nar_ranks(blocks))
        return self.masked_head(hidden[len(prefix) :]).float()

    def length_logits(self, prefix: Prefix, digits: Tensor) -> Tensor:
        """Predict the next digit of the number of frames.

        Args:
            prefix: Made for level 0.
            digits: ``[n]`` int64, those so far; a 0 comes first.

        Returns:
            ``[LENGTH_TOKENS]``: ten digits and the stop.
        """
        hidden = self._run(prefix, self.length_digits(digits), None)
        return self.length_head(hidden[-1:])[0].float()

    def lay_out_for_steps(self) -> None:
        """Store every matrix column by column; shapes and state dict stay as they are.

        A step multiplies a single row by each matrix. On a CPU that is bound by reading the matrix,
        and goes half as fast again where all products of one input lie side by side.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()

    def _words_are_unseen(self, level: int) -> bool:
        """Whether what stands before the words sees neither them nor anything after them."""
        if level == 0 or self.config.nar_mask == "causal":
            return True
        # Voice and prompt are one block, wherever they stand.
        return self.config.nar_mask == "block_causal" and self.config.segments[-2] == "phn"

    def _nar_ranks(self, blocks: Tensor) -> Tensor:
        if self.config.nar_mask == "causal":
            return torch.arange(len(blocks), device=blocks.device)
        return blocks if self.config.nar_mask == "block_causal" else torch.zeros_like(blocks)

    def _run(
        self, prefix: Prefix, response: Tensor, ranks: Tensor | None, start: int = 0
    ) -> Tensor:
        """Return ``[S + T, D]`` of a prefix and response ``[T, D]`` from frame ``start`` on."""
        begin = prefix.response_start + start
        frames = torch.arange(begin, begin + len(response), device=response.device)
        return self.transformer(
            torch.cat([prefix.embeddings, response])[None],
            torch.cat([prefix.positions, frames])[None],
            None if ranks is None else ranks[None],
        )[0]

    @staticmethod
    def _embed(tables: Sequence[nn.Embedding], codes: Tensor, level: int, sums: CodeSums) -> Tensor:
        """Sum the embeddings of the codes that a level hears: ``[T, K]`` to ``[T, D]``."""
        # Exclusive sums miss the newest level: so the reference trained until March 2025.
        end = max(1, level - (sums == "exclusive"))
        heard = range(end - 1 if sums == "none" else 0, end)
        return torch.stack([tables[k](codes[:, k]) for k in heard]).sum(0)
