"""Utterances of models whose frames see no later block: each chunk is one recorded function."""

from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from app.engine.sound.alignment import Decoded
from app.engine.sound.chunks import Chunks
from app.engine.sound.decoding import ChunkDecoder
from app.engine.sound.nar_cached import CachedLevels
from app.engine.sound.recorded.row import ChunkRow, Condition
from app.engine.sound.recorded.utterance import RecordedUtterance
from app.engine.sound.recorded.voice_graph import ChunkSound, VoiceGraph
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import OutOfPages
from samplers.ops.bounds import within


class ChunkedUtterance(RecordedUtterance):
    """An utterance whose chunks are made by a `VoiceGraph`; see `RecordedUtterance`.

    Its prefixes are read when it begins, operator by operator, but all levels at once.
    """

    def __init__(
        self,
        speech: SpeechModel,
        inputs: UtteranceInput,
        prefixes: PrefixCache,
        graph: VoiceGraph,
        stream: int,
    ) -> None:
        """Prefill the prefixes.

        Args:
            speech: The graph's.
            inputs: What is spoken.
            prefixes: Cache of the keys and values that utterances share, in the graph's pool.
            graph: Makes its chunks.
            stream: Of the graph's streams.
        """
        super().__init__(speech, inputs, prefixes, graph.streams, stream)
        started_s = perf_counter()
        self._graph = graph
        codebooks = speech.codec.quantizer.codebooks
        self._finer = CachedLevels(speech.model, codebooks, inputs, prefixes, graph.extend)
        self._chunks = Chunks(speech.model.config.block_frames)
        self._waiting: deque[Tensor] = deque()  # level 0 of chunks that are to be made
        self.nar_s += perf_counter() - started_s

    @property
    def waits(self) -> bool:
        """Whether a chunk is to be made."""
        return bool(self._waiting)

    @property
    def frames(self) -> int:
        """Frames of its next chunk, filled up."""
        count = len(self._waiting[0])
        return next(frames for frames in self._graph.frames if frames >= count)

    @property
    def columns(self) -> int:
        """Positions that its longest sequence holds after the next chunk."""
        return self._finer.longest + self.frames

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take the next frames of level 0; see `RecordedUtterance.push`."""
        chunks = self._chunks.push(codes)
        if ended:
            rest = self._chunks.rest()
            if len(rest) and not (chunks or self._codes or self._made or self._waiting):
                return self._decode_alone(rest)
            chunks += [rest] if len(rest) else []
        self._waiting += chunks
        return self._decoded(len(chunks))

    @torch.inference_mode()
    def make_with(self, others: Sequence[RecordedUtterance]) -> Sequence[RecordedUtterance]:
        """Make its next chunk and those of others that are as long; see `RecordedUtterance`."""
        started_s, frames = perf_counter(), self.frames
        chosen: list[ChunkedUtterance] = []
        rows = columns = 0
        for one in (self, *others):
            assert isinstance(one, ChunkedUtterance)
            most = max(columns, one.columns)
            fits = self._graph.holds(rows + one.rows, min(most, self._graph.columns))
            if one.frames == frames and fits:
                chosen.append(one)
                rows, columns = rows + one.rows, most
        chunks: dict[ChunkedUtterance, ChunkRow] = {}
        for one in chosen:
            try:
                chunks[one] = one.row()
            except OutOfPages as error:
                one.fail(error)
        if chunks:
            light = all(one.light for one in chunks)
            made = self._graph.make([*chunks.values()], frames, light=light)
            spent_s = (perf_counter() - started_s) / len(chunks)
            for one, sound in zip(chunks, made, strict=True):
                one.take(sound, spent_s)
        return chosen

    def row(self) -> ChunkRow:
        """Return the next chunk, with pages for it.

        Raises:
            OutOfPages: The pool has none.
        """
        finer, level_0, params = self._finer, self._waiting[0], self._inputs.params
        reserved = [finer.reserve(number, len(level_0)) for number in range(self.rows)]
        return ChunkRow(
            self._stream, finer.frames, self._given(finer.frames, level_0), finer.count,
            self._knobs, [Condition(*one) for one in reserved],
            within(params.nar_cfg_strength), params.nar_cfg_rescale,
        )  # fmt: skip

    def take(self, sound: ChunkSound, spent_s: float) -> None:
        """Take what became of the next chunk."""
        self._finer.advance(len(self._waiting.popleft()))
        self.nar_s += spent_s
        self._take(torch.from_numpy(sound.codes[:, : self._finer.count].copy()), sound.samples)

    def fail(self, error: Exception) -> None:
        """Raise an error instead of the next chunk."""
        self._waiting.clear()
        self._made.append(error)

    @torch.inference_mode()
    def _decode_alone(self, level_0: Tensor) -> Iterator[Decoded]:
        """Decode an utterance of less than a block, whose codec needs all of it at once."""
        started_s, model = perf_counter(), self._speech.model
        list(self._finer.push(level_0.to(model.separator.device)))
        codes = self._finer.rest()
        self._codes.append(codes.cpu())
        decoder = ChunkDecoder(self._speech.decoder, model.config.block_frames)
        samples = np.concatenate([decoder.push(codes), decoder.finish()])
        self.nar_s += perf_counter() - started_s
        yield Decoded(samples, codes, self._aligned(level_0))
