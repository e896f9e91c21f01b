"""The chain of a recorded step: processors for rows that are not known when it is recorded.

A recorded step runs the same operators whatever its rows ask for. So its processors are built in
the form that any row may need, once, and all that a row's knobs change is contents: every tensor
of theirs lies in one table, a record of bytes a row. A row that joins is one copy into the table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from samplers.ar.pipeline import Pipeline
from samplers.knobs.features import is_on
from samplers.knobs.order import STEPS, arrange
from samplers.knobs.params import SamplingParams
from samplers.ops.bounds import ALL
from samplers.processors.batch_params import BatchParams, Room
from samplers.processors.registry import FIXED, MOVABLE, lookback

_ALIGNED: Final = 8  # bytes

DRAWS: Final = frozenset({"mirostat_mode", "ras", "entropix"})
"""Features that are no processors' but the draw's."""

FEATURES: Final = DRAWS.union(*(processor.features for processor in (*FIXED, *MOVABLE)))
"""Everything that a chain may have on or off."""

ROOM: Final = Room(sequences=8, codes=8, candidates=5)
"""Rows that need larger tables are drawn without a recording."""


@dataclass(frozen=True)
class ChainKind:
    """Which features a chain has.

    Attributes:
        features: Of `FEATURES`.
        lookback: How many of the newest codes it reads; `samplers.ops.bounds.ALL`: the whole
            history.
    """

    features: frozenset[str]
    lookback: int

    @property
    def reads_runs(self) -> bool:
        """Whether it reads the runs of the whole history."""
        return self.lookback >= ALL

    @property
    def reads_attention(self) -> bool:
        """Whether it reads the statistics of the model's attention."""
        return "entropix" in self.features

    def serves(self, params: SamplingParams) -> bool:
        """Return whether it draws a row with these params, if `why_eager` is None for them."""
        on = {feature for feature in FEATURES if is_on(feature, params)}
        return on <= self.features and lookback(params) <= self.lookback


PLAIN: Final = ChainKind(frozenset({"temperature", "top_k", "top_p", "min_p"}), lookback=0)
"""What most rows need, those of the presets `default` and `builtin` among them."""

LIGHT: Final = ChainKind(
    PLAIN.features
    | {
        "logit_bias", "ban_tokens", "min_frames", "repetition_penalty", "frequency_penalty",
        "presence_penalty",
    },
    lookback=128,
)  # fmt: skip
"""What nearly all rows need, those of the preset `stable` and OpenAI's penalties among them."""

FULL: Final = ChainKind(FEATURES, lookback=ALL)
"""All features."""

KINDS: Final = (PLAIN, LIGHT, FULL)
"""Each can draw whatever the ones before it can."""


def kind_of(params: SamplingParams) -> ChainKind:
    """Return the smallest kind of chain that draws a row."""
    return next((kind for kind in KINDS if kind.serves(params)), FULL)


def largest(kinds: Iterable[ChainKind]) -> ChainKind:
    """Return the smallest kind of chain that draws rows of some kinds; at least one."""
    return max(kinds, key=KINDS.index)


def at_least(kind: ChainKind) -> Sequence[ChainKind]:
    """Return the kinds that can draw the rows of a kind, itself first."""
    return KINDS[KINDS.index(kind) :]


def why_eager(params: SamplingParams) -> str | None:
    """Return why no recorded chain draws a row with these params; None if one does."""
    if params.beam_width:
        return "beam search: a beam may continue in any other's row, which the host decides"
    if is_on("branch", params):
        return "entropix branches: the host decides which of them goes on"
    if arrange(params.sampler_order, temperature_last=params.temperature_last) != STEPS:
        return "an order of its own: all rows of a recorded chain have the canonical one"
    banned = params.ban_sequences
    if len(banned) > ROOM.sequences or any(len(one.codes) > ROOM.codes for one in banned):
        return f"more than {ROOM.sequences} banned sequences, or longer than {ROOM.codes} codes"
    if is_on("entropix", params) and params.entropix_adaptive_candidates > ROOM.candidates:
        return f"more than {ROOM.candidates} adaptive candidates"
    return None


@dataclass(frozen=True)
class _AnyRows(BatchParams):
    """Rows that are not known: every form that some row of a kind needs is there."""

    kind: ChainKind = field(default=FULL)

    def take(self, rows: Sequence[int]) -> BatchParams:  # noqa: ARG002  # there is one order
        return self

    def any(self, *features: str) -> bool:
        return not self.kind.features.isdisjoint(features)

    def some(self, values: Sequence[bool]) -> bool:  # noqa: ARG002
        return True

    def every(self, values: Sequence[bool]) -> bool:  # noqa: ARG002
        return False


class Chain:
    """The processors of one kind for some rows.

    Attributes:
        kind: Its kind.
        pipeline: The processors, and the draw.
    """

    def __init__(
        self, kind: ChainKind, rows: int, *, vocab_size: int, stop_token: int, device: torch.device
    ) -> None:
        """Build the processors, with all features off in every row.

        Args:
            kind: Which features they have.
            rows: B.
            vocab_size: V.
            stop_token: The id that ends an utterance.
            device: Where the logits will be.
        """
        self.kind = kind
        batch = _AnyRows(
            [SamplingParams()] * rows, vocab_size, stop_token, device, [None] * rows, ROOM, kind
        )
        self.pipeline = Pipeline(batch, lookback=kind.lookback, acts=kind.reads_attention)
        self._batch = batch
        self._contents, self._structure = _contents(self.pipeline)

    def table(self) -> Tensor:
        """Return ``[B, bytes]`` uint8: the record of every row, in new memory."""
        tensors = [_as_bytes(tensor) for tensor in self._contents]
        return torch.cat([_padded(tensor) for tensor in tensors], 1)

    def lie_in(self, table: Tensor) -> None:
        """Make the first rows of a table the contents of all processors.

        Args:
            table: ``[>= B, bytes]`` of `table`; is read at every step from now on.
        """
        start = 0
        for tensor in self._contents:
            column = table[: len(tensor), start : start + _row_bytes(tensor)].view(tensor.dtype)
            column = column.view(tensor.shape)
            storage, offset = column.untyped_storage(), column.storage_offset()
            tensor.set_(storage, offset, column.shape, column.stride())
            start += _size(tensor)

    def record(self, params: SamplingParams, silent: Tensor | None) -> Tensor:
        """Return the record of a row, ``[bytes]`` uint8 on the host.

        Args:
            params: Resolved.
            silent: ``(<= V,)`` bool, the codes of silence, or None.

        Raises:
            ValueError: The chain cannot draw such a row.
        """
        rows = self._batch
        one = _AnyRows(
            [params], rows.vocab_size, rows.stop_token, torch.device("cpu"),
            [None if silent is None else silent.cpu()], ROOM, self.kind,
        )  # fmt: skip
        pipeline = Pipeline(one, lookback=self.kind.lookback, acts=self.kind.reads_attention)
        contents, structure = _contents(pipeline)
        shapes = [(tensor.shape[1:], tensor.dtype) for tensor in contents]
        if structure != self._structure or shapes != [
            (tensor.shape[1:], tensor.dtype) for tensor in self._contents
        ]:
            raise ValueError("the chain has not the form that these params need")
        return torch.cat([_padded(_as_bytes(tensor)) for tensor in contents], 1)[0]


def _contents(pipeline: Pipeline) -> tuple[list[Tensor], list[Any]]:
    """Return the tensors ``(B, ...)`` of all processors, and everything else that they hold.

    The order of both is that in which attributes were set.
    """
    tensors: dict[int, Tensor] = {}
    rest: list[Any] = []

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            tensors.setdefault(id(value), value)
        elif isinstance(value, BatchParams):
            return  # read already
        elif isinstance(value, dict):
            for part in value.values():
                visit(part)
        elif isinstance(value, list | tuple):
            for part in value:
                visit(part)
        elif hasattr(value, "__dict__"):
            rest.append(type(value))
            visit(vars(value))
        else:
            rest.append(value)

    visit(pipeline)
    return list(tensors.values()), rest


def _row_bytes(tensor: Tensor) -> int:
    return tensor[0].numel() * tensor.element_size()


def _size(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes of a record."""
    return -(-_row_bytes(tensor) // _ALIGNED) * _ALIGNED


def _as_bytes(tensor: Tensor) -> Tensor:
    """Return ``(B, ...)`` as ``[B, n]`` uint8."""
    return tensor.reshape(len(tensor), -1).contiguous().view(torch.uint8)


def _padded(rows: Tensor) -> Tensor:
    return torch.nn.functional.pad(rows, (0, -rows.shape[1] % _ALIGNED))
