"""The input of the language model before the response: embeddings, positions and mask ranks."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Prefix:
    """Everything before the response: text, language, level and voice prompt, already embedded."""

    embeddings: Tensor  # [S, D]
    positions: Tensor  # [S] int64
    blocks: Tensor  # [S] int64 ranks of the block-causal mask: 0 up to the prompt, 1 for phonemes
    response_start: int = 0  # position of response frame 0; not 0 where positions count through
    # length of the leading part that is the same for every text and attends to nothing after it, so
    # that its keys and values can be cached across texts
    shared: int = 0
    text_start: int = 0  # index of the first phoneme

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, part: slice) -> "Prefix":
        """Return a slice of the positions, with ``shared`` and ``text_start`` reset to 0."""
        return Prefix(
            self.embeddings[part], self.positions[part], self.blocks[part], self.response_start
        )
