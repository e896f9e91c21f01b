"""The AR+NAR language model: segments of embeddings into the stack, logits out.

A sequence is a list of segments; between two of them stands one learned separator. Each segment
counts its positions from 0 and includes its trailing separator; the response comes last and has
none. Response frame i therefore always has position i, which makes a KV cache exact.

Level 0 is autoregressive (AR): causal, position i predicts frame i + 1, the last position before
the response predicts frame 0. Levels 1 and up are not (NAR): position i predicts frame i of its
level from the codes of all lower levels.

It returns logits; it never draws a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from models.config import BOS_ID, EOS_ID, ModelConfig
from models.transformer import Transformer


@dataclass(frozen=True)
class Prefix:
    """All that stands before the response.

    Attributes:
        embeddings: ``[S, D]``.
        positions: ``[S]`` int64.
        blocks: ``[S]`` int64, 0 up to the prompt, 1 for the phonemes: the ranks of block-causal.
    """

    embeddings: Tensor
    positions: Tensor
    blocks: Tensor

    def __len__(self) -> int:
        return len(self.positions)


class Valle(nn.Module):
    """Embeddings, stack and heads of one checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, codes, levels = config.width, config.codes, config.levels
        self.phonemes = nn.Embedding(EOS_ID + 1 + len(config.phonemes), width)
        self.languages = nn.Embedding(len(config.languages), width)
        self.level = nn.Embedding(levels, width)
        self.separator = nn.Parameter(torch.zeros(width))
        # Table 0 is the AR's own and holds the stop token; table k + 1 is the NAR's for level k.
        response = nn.ModuleList(
            nn.Embedding(codes + (table == 0), width) for table in range(levels)
        )
        self.response = cast("Sequence[nn.Embedding]", response)
        prompt = nn.ModuleList(
            nn.Embedding(codes, width) for _ in range(levels if config.max_prompt_frames else 0)
        )
        self.prompt = cast("Sequence[nn.Embedding]", prompt)
        self.transformer = Transformer(config)
        self.heads = nn.ModuleList(
            nn.Linear(width, codes + (level == 0)) for level in range(levels)
        )

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
            "lang": self.languages.weight[language, None],
            "level": self.level.weight[level, None],
            "phn": self.phonemes(torch.tensor(phoneme_ids, device=device)),
        }
        if prompt is not None and len(prompt):
            if not self.prompt:
                raise ValueError("this model takes no voice prompt")
            segments["prom"] = self._embed(self.prompt, prompt[:, : max(1, level)])
        parts, positions, blocks = [], [], []
        for name in self.config.segments[:-1]:
            if name not in segments:
                continue
            parts += [segments[name], self.separator[None]]
            count = len(segments[name]) + 1
            positions.append(torch.arange(count, device=device))
            blocks.append(torch.full((count,), int(name == "phn"), device=device))
        return Prefix(torch.cat(parts), torch.cat(positions), torch.cat(blocks))

    def null_prefix(self, level: int, *, language: int = 0) -> Prefix:
        """Assemble the prefix that says nothing, no words and no prompt, for guidance."""
        return self.prefix([BOS_ID, EOS_ID], level, language=language)

    def embed_response(self, codes: Tensor, level: int) -> Tensor:
        """Return the response's embeddings ``[T, D]`` as the given level sees it.

        Args:
            codes: ``[T, >= max(1, level)]`` int64; level 0 sees level 0, others all lower levels.
            level: The level to be predicted.
        """
        if level == 0:
            return self.response[0](codes[:, 0])
        return self._embed(self.response[1:], codes[:, :level])

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
        if level == 0 or self.config.nar_mask == "causal":
            return torch.arange(len(blocks), device=blocks.device)
        return blocks if self.config.nar_mask == "block_causal" else torch.zeros_like(blocks)

    def logits(self, hidden: Tensor, level: int) -> Tensor:
        """Return ``[..., V]`` of ``[..., D]``; level 0 has the stop token as its last entry."""
        return self.heads[level](hidden)

    def nar_logits(self, prefix: Prefix, codes: Tensor, level: int) -> Tensor:
        """Predict a whole level in one pass, with no cache.

        Args:
            prefix: Made for this level.
            codes: ``[T, >= level]`` int64.
            level: From 1 on.

        Returns:
            ``[T, V]``.
        """
        response = self.embed_response(codes, level)
        frames = torch.arange(len(response), device=response.device)
        blocks = torch.cat([prefix.blocks, self.response_blocks(0, len(response))])
        hidden = self.transformer(
            torch.cat([prefix.embeddings, response])[None],
            torch.cat([prefix.positions, frames])[None],
            self.ranks(level, blocks)[None],
        )
        return self.logits(hidden[0, len(prefix) :], level)

    def lay_out_for_steps(self) -> None:
        """Store every matrix column by column; shapes and state dict stay as they are.

        A step multiplies a single row by each matrix. On a CPU that is bound by reading the matrix,
        and goes half as fast again where all products of one input lie side by side.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()

    @staticmethod
    def _embed(tables: Sequence[nn.Embedding], codes: Tensor) -> Tensor:
        """Sum the embeddings of each frame's codes: ``[T, K']`` to ``[T, D]``."""
        # zip would hide a missing table
        return torch.stack([tables[k](codes[:, k]) for k in range(codes.shape[1])]).sum(0)
