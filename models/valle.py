"""The AR+NAR language model: segments of embeddings in, logits out. It never samples a token.

A sequence is a list of segments with one learned separator between any two. Each segment counts its
positions from 0 and includes its trailing separator; the response comes last and has none. Response
frame i therefore always has position i, which makes a KV cache exact.

Level 0 is autoregressive (AR): causal, position i predicts frame i + 1, and the last position
before the response predicts frame 0. Levels 1 and up are not (NAR): position i predicts frame i of
its level from the codes of lower levels. Some models can also predict level 0 in masked passes over
all frames, and the number of frames beforehand, digit by digit. A prefix is made for one level.

Some models have no segments but text and response, which begins with the prompt; their levels 1 and
up have a stack of their own, with norms by level (`ModelConfig.nar_stack`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from models.config import BOS_ID, EOS_ID, LENGTH_TOKENS, CodeSums, ModelConfig
from models.null_head import NullHead, NullLogits
from models.prefix import Prefix
from models.stack.batching import UNPADDED, Batching, RowFunction, measure_batching
from models.stack.slot_cache import SlotCache
from models.stack.taps import NO_TAPS, Taps
from models.stack.transformer import MAX_POSITIONS, Transformer


class Valle(nn.Module):
    """Embeddings, transformer stack and output heads of one checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        codes = config.codes
        levels = config.levels
        nar = config.nar
        marked = "level" in config.segments
        texts = len(config.languages) if config.phonemes_by_language else 1
        self.phonemes = nn.Embedding(texts * config.phoneme_rows, width)
        languages = config.language_rows or len(config.languages)
        self.languages = nn.Embedding(languages * marked, width)
        self.level = nn.Embedding(levels * marked, width)
        self.separator = nn.Parameter(torch.zeros(width))
        # Table 0 is the AR's own and holds the stop token; table k + 1 is the NAR's for level k.
        first = nn.Embedding(codes + 1 + config.start_token, width)
        later_levels = range(levels - (config.prompt_sums != "all"))
        response = nn.ModuleList([first, *(nn.Embedding(codes, nar.width) for _ in later_levels)])
        self.response = cast("Sequence[nn.Embedding]", response)
        own_tables = config.max_prompt_frames and not config.shared_tables
        prompt = nn.ModuleList(nn.Embedding(codes, width) for _ in range(levels * bool(own_tables)))
        self.prompt = cast("Sequence[nn.Embedding]", prompt)
        if config.prompt_all_levels:
            self.prompt_rest = nn.Linear(width, width, bias=False)
        self.transformer = Transformer(config)
        self.heads = nn.ModuleList([
            nn.Linear(width, codes + 1),
            *(nn.Linear(nar.width, codes) for _ in range(1, levels)),
        ])
        stacks = nn.ModuleList()
        if config.nar_stack is not None:
            self.nar_phonemes = nn.Embedding(texts * config.phoneme_rows, nar.width)
            stack = Transformer(nar)
            stacks.extend([stack, *(stack.with_own_gains() for _ in range(2, levels))])
        self.nar_stacks = cast("Sequence[Transformer]", stacks)
        self._ar_batching: Batching | None = None
        if config.masked_level_0:
            self.masked_response = nn.Embedding(codes + 1, width)  # the last row is the mask
            self.masked_head = nn.Linear(width, codes)
            self.length_digits = nn.Embedding(LENGTH_TOKENS, width)
            self.length_head = nn.Linear(width, LENGTH_TOKENS)
        self.null_head: NullLogits | None = None
        if config.null_head is not None:
            self.null_head = NullHead(width, codes + 1, config.null_head)

    @property
    def output_heads(self) -> Sequence[nn.Module]:
        """The layers that give logits."""
        masked = [self.masked_head, self.length_head] if self.config.masked_level_0 else []
        null = [] if self.null_head is None else [self.null_head]
        return [*self.heads, *masked, *null]

    def stack(self, level: int) -> Transformer:
        """Return the stack of a level."""
        return self.nar_stacks[level - 1] if level and self.nar_stacks else self.transformer

    def new_cache(self, slots: int, max_length: int) -> SlotCache:
        """Return an empty KV cache of level 0 for sequences of at most ``max_length`` positions."""
        return self.transformer.new_cache(slots, max_length)

    def prefix(
        self,
        phoneme_ids: Sequence[int],
        level: int,
        *,
        language: int = 0,
        prompt: Tensor | None = None,
    ) -> Prefix:
        """Embed everything before the response.

        ``phoneme_ids`` include BOS and EOS, if the model has them, and what the prompt says if that
        begins the response; ``prompt`` is ``[Tp, K]`` int64 codes of the voice.
        Raises ValueError if the model was trained without a prompt.
        """
        if self.config.prompt == "response":
            return self._begun_prefix(phoneme_ids, level, prompt)
        device = self.separator.device
        language = min(language, self.languages.num_embeddings - 1)
        first_language = 1 + self.config.levels
        first_phoneme = first_language + self.languages.num_embeddings
        segments: dict[str, tuple[Iterable[int], Callable[[int], Tensor]]] = {
            "lang": ([first_language + language], lambda _: self.languages.weight[language, None]),
            "level": ([1 + level], lambda level: self.level.weight[level, None]),
            "phn": (
                [first_phoneme + one for one in phoneme_ids],
                lambda _: self.phonemes(torch.tensor(phoneme_ids, device=device)),
            ),
        }
        if prompt is not None and len(prompt):
            if not self.config.max_prompt_frames:
                raise ValueError("this model takes no voice prompt")
            rows = range(self.symbol_count, self.symbol_count + len(prompt))
            segments["prom"] = rows, lambda level: self.embed_prompt(prompt, level)
        names = [name for name in self.config.segments[:-1] if name in segments]
        parts = []
        for name in names:
            symbols = [*segments[name][0], 0]
            parts.append([symbols, range(len(symbols)), [int(name == "phn")] * len(symbols)])
        numbers = np.concatenate(parts, 1)
        before_text = int(numbers[2].argmax())
        total = numbers.shape[1]
        if self.config.unified_positions:
            numbers[1] = range(total)

        def embed(level: int) -> Tensor:
            own = ([segments[name][1](level), self.separator[None]] for name in names)
            return torch.cat([*chain(*own)])

        return Prefix(
            level, numbers, embed, device, prompt,
            response_start=total if self.config.unified_positions else 0,
            shared=before_text if self.hides_text(level) else 0, text_start=before_text,
        )  # fmt: skip

    def _begun_prefix(self, ids: Sequence[int], level: int, prompt: Tensor | None) -> Prefix:
        """Embed a text, and the prompt as the beginning of the response."""
        config = self.config
        device = self.separator.device
        given = prompt if prompt is not None and len(prompt) else None
        begins = level == 0 and config.start_token
        codes = [config.codes + 1] * begins
        if given is not None:
            codes += given[:, 0].tolist()
        if not codes and level == 0:
            raise ValueError("without a start token frames begin with those of a prompt")
        first_phoneme = 1 + self.level.num_embeddings + self.languages.num_embeddings
        frames = np.arange(len(codes))
        own = np.arange(len(ids)) + MAX_POSITIONS * (config.block.positions == "added")
        numbers = np.concatenate(
            [
                [first_phoneme + np.array(ids, np.int64), own, np.zeros(len(ids), np.int64)],
                [self._first_frame + np.array(codes, np.int64), frames, 1 + frames],
            ],
            1,
        )

        def embed(level: int) -> Tensor:
            text = self.nar_phonemes if level and self.nar_stacks else self.phonemes
            parts = [text(torch.tensor(ids, dtype=torch.int64, device=device))]
            if level == 0:
                parts.append(self.response[0](torch.tensor(codes, device=device)))
            elif given is not None:
                parts.append(self.embed_prompt(given, level))
            return torch.cat(parts)

        return Prefix(level, numbers, embed, device, prompt, response_start=len(codes))

    @property
    def symbol_count(self) -> int:
        """How many `symbols` there are."""
        return self._first_frame + self.response[0].num_embeddings

    def symbols(self) -> Tensor:
        """Return a copy ``[V, D]`` of the embeddings of all that a prefix has but the prompt.

        Those of the frames of level 0 come last.
        """
        tables = self.level, self.languages, self.phonemes, self.response[0]
        return torch.cat([self.separator[None], *(one.weight for one in tables)])

    @property
    def _first_frame(self) -> int:
        tables = self.level, self.languages, self.phonemes
        return 1 + sum(one.num_embeddings for one in tables)

    def null_prefix(self, level: int, *, language: int = 0) -> Prefix:
        """Return the unconditional prefix for guidance: no text and no prompt.

        It is shared by all texts, except for the last position of level 0, which predicts frame 0
        and is therefore always computed.
        """
        text = [BOS_ID, EOS_ID] if self.config.text_marks else []
        prefix = self.prefix(text, level, language=language)
        if level == 0:
            return replace(prefix, shared=len(prefix) - 1)
        return replace(prefix, shared=0 if self.config.nar_mask == "full" else len(prefix))

    def begin(self, prefix: Prefix, codes: Tensor) -> Prefix:
        """Return a level-0 prefix extended by first frames of the response; see `frames`."""
        frames = self.frames(codes, prefix.response_start)
        return replace(
            prefix,
            numbers=np.concatenate([prefix.numbers, frames.numbers], 1),
            embed=lambda _: torch.cat([prefix.embeddings, frames.embeddings]),
            response_start=prefix.response_start + len(codes),
            shared=0,
        )

    def frames(self, codes: Tensor, start: int) -> Prefix:
        """Return frames ``[T]`` int64 of level 0, on the host, as what is read behind a prefix.

        ``start`` is the position id of the first.
        """
        positions = np.arange(start, start + len(codes))
        device = self.separator.device
        in_turn = self.config.text_mask == "full"
        blocks = 1 + positions if in_turn else 2 + positions // self.config.block_frames
        numbers = np.stack([self._first_frame + codes.numpy(), positions, blocks])
        return Prefix(
            0, numbers, lambda _: self.embed_response(codes.to(device)[:, None], 0), device
        )

    def embed_response(self, codes: Tensor, level: int) -> Tensor:
        """Return the embeddings ``[T, D]`` of the response as input of a level.

        ``codes`` are ``[T, >= max(1, level)]`` int64. Level 0 is predicted from level 0, others
        from the lower levels that ``config.response_sums`` selects.
        """
        if level == 0:
            return self.response[0](codes[:, 0])
        return self._embed(self.response[1:], codes, level, self.config.response_sums)

    def embed_prompt(self, codes: Tensor, level: int) -> Tensor:
        """Return the embeddings ``[T, D]`` of a voice prompt ``[T, K]`` as input of a level."""
        tables = self.response[1:] if self.config.shared_tables else self.prompt
        embedded = self._embed(tables, codes, level, self.config.prompt_sums)
        rest = [tables[k](codes[:, k]) for k in range(max(1, level), len(tables))]
        if self.config.prompt_all_levels and rest:
            embedded = embedded + self.prompt_rest(torch.stack(rest).sum(0))
        return embedded

    def response_blocks(self, start: int, count: int) -> Tensor:
        """Return the block-causal ranks ``[count]`` of response frames from ``start`` on."""
        frames = torch.arange(start, start + count, device=self.separator.device)
        return 2 + frames // self.config.block_frames

    def read(
        self, prefix: Prefix, cache: SlotCache, slot: int, taps: Taps = NO_TAPS
    ) -> tuple[Tensor, Tensor]:
        """Append a prefix to a slot.

        Returns hidden states and queries, as `CachedPasses` does.
        """
        ranks = self.ranks(prefix.level, prefix.blocks)
        return self.stack(prefix.level).extend(
            prefix.embeddings, prefix.positions, cache, slot, ranks, taps
        )

    def ranks(self, level: int, blocks: Tensor) -> Tensor:
        """Return the ranks ``[S]`` for `Transformer`'s mask, of `Prefix.blocks`, `response_blocks`.

        Level 0 is causal, but for a text of ``config.text_mask="full"``; others use
        ``config.nar_mask``.
        """
        if level == 0 and self.config.text_mask == "full":
            return blocks
        if level == 0:
            return torch.arange(len(blocks), device=blocks.device)
        return self._nar_ranks(blocks)

    def logits(self, hidden: Tensor, level: int) -> Tensor:
        """Return the logits ``[..., V]`` float32 of hidden states; level 0's end with the stop."""
        head = self.heads[level]
        hidden = _widened(hidden)
        if hidden.ndim == 2:
            return self._head_batching(level).run(head, hidden).float()
        return head(hidden).float()

    def logits_with_null(self, states: Tensor, guided: Sequence[int] | slice) -> Tensor:
        """Return logits ``[R + n, V]`` float32 of level 0, the null condition's behind the others.

        The null head predicts those of n ``guided`` rows. ``states`` are ``[R, (1 + L) * D]``: the
        last hidden ones, and behind them the outputs that the head reads.
        """
        assert self.null_head is not None
        batching = self._head_batching(0)
        return self.null_head.logits(_widened(states), guided, self.heads[0], batching)

    def _head_batching(self, level: int) -> Batching:
        """Return the batching of a head's rows; only level 0 batches rows of several jobs."""
        if level or not self.transformer.depends_on_batch:
            return UNPADDED
        if self._ar_batching is None:
            heads: list[tuple[RowFunction, int]] = [(self.heads[0], self.config.width)]
            if self.null_head is not None:
                heads.append((self.null_head, self.null_taps.width(self.config.width)))
            widened = _widened(self.separator[None]).dtype
            self._ar_batching = measure_batching(heads, widened)
        return self._ar_batching

    @property
    def null_taps(self) -> Taps:
        """What the null head reads of level 0; nothing without one."""
        head = self.config.null_head
        return NO_TAPS if head is None else Taps(outputs=head.layers)

    def ar_logits(self, prefix: Prefix, codes: Tensor) -> Tensor:
        """Predict every frame of level 0, ``[T, >= 1]`` int64, in one pass without a cache.

        In the result ``[T + 1, V + 1]`` row i predicts frame i, the last row the frame after them.
        """
        frames = self.frames(codes[:, 0].cpu(), prefix.response_start)
        ranks = self.ranks(0, torch.cat([prefix.blocks, frames.blocks]))
        hidden = self._run(prefix, self.embed_response(codes, 0), ranks)
        return self.logits(hidden[len(prefix) - 1 :], 0)

    def nar_logits(self, prefix: Prefix, codes: Tensor, level: int, start: int = 0) -> Tensor:
        """Predict a level of several frames in one pass without a cache, ``[T, V]``.

        ``codes`` are ``[T, >= level]`` int64, from frame ``start`` on; earlier ones are not
        attended to.
        """
        blocks = torch.cat([prefix.blocks, self.response_blocks(start, len(codes))])
        response = self.embed_response(codes, level)
        hidden = self._run(prefix, response, self.ranks(level, blocks), start)
        return self.logits(hidden[len(prefix) :], level)

    def masked_logits(self, prefix: Prefix, codes: Tensor) -> Tensor:
        """Predict level 0 of all frames from the unmasked ones, ``[T, V]`` without a stop.

        ``codes`` are ``[T]`` int64, ``config.mask_token`` where unknown.
        """
        blocks = torch.cat([prefix.blocks, self.response_blocks(0, len(codes))])
        hidden = self._run(prefix, self.masked_response(codes), self._nar_ranks(blocks))
        return self.masked_head(_widened(hidden[len(prefix) :])).float()

    def length_logits(self, prefix: Prefix, digits: Tensor) -> Tensor:
        """Predict the next digit of the number of frames, ``[LENGTH_TOKENS]``: ten digits and stop.

        ``digits`` are ``[n]`` int64: a leading 0 and the digits so far.
        """
        hidden = self._run(prefix, self.length_digits(digits), None)
        return self.length_head(_widened(hidden[-1:]))[0].float()

    def lay_out_for_steps(self) -> None:
        """Store every matrix in column-major order; shapes and state dict do not change.

        A CPU reads it 1.5 times as fast so when a step multiplies a single row.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()

    def hides_text(self, level: int) -> bool:
        """Whether no position before the text attends to the text or anything after it."""
        if level == 0:
            return self.config.text_mask == "causal"
        if self.config.nar_mask == "causal":
            return True
        # All segments but the text and the response are one block, wherever they stand.
        return self.config.nar_mask == "block_causal" and self.config.segments[-2] == "phn"

    def _nar_ranks(self, blocks: Tensor) -> Tensor:
        if self.config.nar_mask == "causal":
            return torch.arange(len(blocks), device=blocks.device)
        return blocks if self.config.nar_mask == "block_causal" else torch.zeros_like(blocks)

    def _run(
        self, prefix: Prefix, response: Tensor, ranks: Tensor | None, start: int = 0
    ) -> Tensor:
        """Return hidden states ``[S + T, D]`` of a prefix and a response ``[T, D]``."""
        begin = prefix.response_start + start
        frames = torch.arange(begin, begin + len(response), device=response.device)
        return self.stack(prefix.level)(
            torch.cat([prefix.embeddings, response])[None],
            torch.cat([prefix.positions, frames])[None],
            None if ranks is None else ranks[None],
        )[0]

    @staticmethod
    def _embed(
        tables: Sequence[nn.Embedding], codes: Tensor, level: int, sums: CodeSums | Literal["all"]
    ) -> Tensor:
        """Sum the embeddings of the codes ``[T, K]`` that a level is predicted from: ``[T, D]``."""
        if sums == "all":
            level = len(tables)
        # Exclusive sums omit the level just below, as the reference trained until March 2025.
        end = max(1, level - (sums == "exclusive"))
        levels = range(end - 1 if sums == "none" else 0, end)
        return torch.stack([tables[k](codes[:, k]) for k in levels]).sum(0)


def _widened(hidden: Tensor) -> Tensor:
    """Return hidden states as the heads take them: bfloat16 as float32."""
    return hidden.float() if hidden.dtype == torch.bfloat16 else hidden
