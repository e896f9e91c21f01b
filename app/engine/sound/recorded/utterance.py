"""Utterances whose chunks are made by a recorded function, several at once."""

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from app.engine.sound.alignment import Alignment, Decoded, UtteranceAlignment
from app.engine.sound.chunks import Chunks
from app.engine.sound.decoding import ChunkDecoder, finite
from app.engine.sound.nar_cached import CachedLevels
from app.engine.sound.recorded.row import ChunkRow, Condition
from app.engine.sound.recorded.voice_graph import COLUMNS, ChunkSound, VoiceGraph
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.codecs.vocos import Vocos
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import OutOfPages
from samplers.knobs.features import is_guided
from samplers.nar import is_greedy, row_of
from samplers.ops.bounds import within

_MARKS = 8  # language, level, separators and the like, beside the symbols of a text


def why_eager(
    speech: SpeechModel, inputs: UtteranceInput, columns: int = COLUMNS[-1]
) -> str | None:
    """Return why the chunks of an utterance are not made by a recording; None if they are.

    Args:
        speech: Model and codec.
        inputs: What is spoken.
        columns: The most positions of a recorded utterance.
    """
    if isinstance(speech.decoder, Vocos):
        return "Vocos: it decodes an utterance as a whole"
    if not inputs.params.nar_levels:
        return "nar_levels 0: there is nothing to draw"
    prompt = 0 if inputs.prompt is None else len(inputs.prompt)
    if len(inputs.phoneme_ids) + prompt + _MARKS + inputs.max_frames > columns:
        return f"it may become longer than {columns} positions"
    return None


class RecordedUtterance:
    """Makes the sound of one utterance while its level 0 is drawn; see `UtteranceDecoder`.

    Its prefixes are read when it begins, operator by operator.

    Attributes:
        nar_s: Seconds spent on finer levels and codec, those of all chunks of a recording.
        codec_s: Seconds spent on the codec alone.
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
            inputs: What is spoken; `why_eager` has nothing to say.
            prefixes: Cache of the keys and values that utterances share, in the graph's pool.
            graph: Makes its chunks.
            stream: Of `VoiceGraph.take_stream`; goes back when this is garbage collected.
        """
        started_s = perf_counter()
        weakref.finalize(self, graph.give_stream, stream)
        self._speech, self._inputs, self._graph, self._stream = speech, inputs, graph, stream
        model, params = speech.model, inputs.params
        self._levels = CachedLevels(model, speech.codec.quantizer.codebooks, inputs, prefixes)
        self._alignment = UtteranceAlignment(model, inputs, prefixes) if inputs.aligned else None
        self._chunks = Chunks(model.config.block_frames)
        self._knobs = [
            row_of(
                params, seed=inputs.seed, utterance=inputs.utterance, level=level,
                vocab_size=model.config.codes,
            )
            for level in range(1, model.config.levels)
        ]  # fmt: skip
        self._guided = is_guided(params, "nar")
        self.light = is_greedy(params) and not self._guided
        self._waiting: deque[Tensor] = deque()  # level 0 of chunks that are to be made
        self._made: deque[Decoded | Exception] = deque()
        self._codes: list[Tensor] = []
        self.nar_s, self.codec_s = perf_counter() - started_s, 0.0

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64 on the host, as far as they are drawn."""
        none = torch.zeros(0, self._levels.count, dtype=torch.int64)
        return torch.cat([none, *self._codes])

    @property
    def waits(self) -> bool:
        """Whether a chunk is to be made."""
        return bool(self._waiting)

    @property
    def rows(self) -> int:
        """Rows that a chunk takes."""
        return 1 + self._guided

    @property
    def frames(self) -> int:
        """Frames of its next chunk, filled up."""
        count = len(self._waiting[0])
        return next(frames for frames in self._graph.frames if frames >= count)

    @property
    def columns(self) -> int:
        """Positions that its longest sequence holds after the next chunk."""
        return self._levels.longest + self.frames

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take the next frames of level 0, and yield what the chunks that they complete become.

        Frames are taken at once, so that chunks can be made with those of other utterances before
        they are asked for. Iterators are to be exhausted in their order.

        Args:
            codes: ``[n]`` int64 of level 0 on the host: final frames.
            ended: Whether they are the last.

        Raises:
            GenerationFailed: The samples are not finite.
        """
        chunks = self._chunks.push(codes)
        if ended:
            rest = self._chunks.rest()
            if len(rest) and not (chunks or self._codes or self._made or self._waiting):
                return self._decode_alone(rest)
            chunks += [rest] if len(rest) else []
        self._waiting += chunks
        return self._decoded(len(chunks))

    def cancel(self) -> None:
        """Do nothing: what is held here is garbage collected."""

    def row(self) -> ChunkRow:
        """Return the next chunk, with pages for it.

        Raises:
            OutOfPages: The pool has none.
        """
        levels, inputs, level_0 = self._levels, self._inputs, self._waiting[0]
        count, frame = len(level_0), levels.frames
        given = np.full((count, self._speech.model.config.levels), -1, np.int64)
        if inputs.kept is not None and frame < len(inputs.kept.codes):
            kept = inputs.kept.codes[frame : frame + count].numpy()
            given[: len(kept), : kept.shape[1]] = kept
        given[:, 0] = level_0.numpy()
        params = inputs.params
        return ChunkRow(
            self._stream, frame, given, levels.count, self._knobs,
            [Condition(*levels.reserve(number, count)) for number in range(self.rows)],
            within(params.nar_cfg_strength), params.nar_cfg_rescale,
        )  # fmt: skip

    def take(self, sound: ChunkSound, spent_s: float) -> None:
        """Take what became of the next chunk."""
        level_0 = self._waiting.popleft()
        self._levels.advance(len(level_0))
        codes = torch.from_numpy(sound.codes[:, : self._levels.count].copy())
        self._codes.append(codes)
        self.nar_s += spent_s
        try:
            self._made.append(Decoded(finite(sound.samples), codes, self._aligned(level_0)))
        except Exception as error:  # of this utterance alone
            self._made.append(error)

    def fail(self, error: Exception) -> None:
        """Raise an error instead of the next chunk."""
        self._waiting.clear()
        self._made.append(error)

    def _decoded(self, count: int) -> Iterator[Decoded]:
        for _ in range(count):
            if not self._made:
                make_together(self._graph, [self])
            made = self._made.popleft()
            if isinstance(made, Exception):
                raise made
            yield made

    def _aligned(self, level_0: Tensor) -> Alignment | None:
        if self._alignment is None:
            return None
        return self._alignment.push(level_0.to(self._speech.model.separator.device))

    @torch.inference_mode()
    def _decode_alone(self, level_0: Tensor) -> Iterator[Decoded]:
        """Decode an utterance of less than a block, whose codec needs all of it at once."""
        started_s, model = perf_counter(), self._speech.model
        list(self._levels.push(level_0.to(model.separator.device)))
        codes = self._levels.rest()
        self._codes.append(codes.cpu())
        decoder = ChunkDecoder(self._speech.decoder, model.config.block_frames)
        samples = np.concatenate([decoder.push(codes), decoder.finish()])
        self.nar_s += perf_counter() - started_s
        yield Decoded(samples, codes, self._aligned(level_0))


@torch.inference_mode()
def make_together(
    graph: VoiceGraph, utterances: Sequence[RecordedUtterance]
) -> Sequence[RecordedUtterance]:
    """Make the next chunk of the first of some utterances, and of others that fit in with it.

    Args:
        graph: Of them all.
        utterances: Those that wait for a chunk, the most urgent first.

    Returns:
        Those whose chunks were made, or failed.
    """
    started_s, frames = perf_counter(), utterances[0].frames
    chosen: list[RecordedUtterance] = []
    rows = columns = 0
    for one in utterances:
        most = max(columns, one.columns)
        if one.frames == frames and graph.holds(rows + one.rows, min(most, graph.columns)):
            chosen.append(one)
            rows, columns = rows + one.rows, most
    chunks: dict[RecordedUtterance, ChunkRow] = {}
    for one in chosen:
        try:
            chunks[one] = one.row()
        except OutOfPages as error:
            one.fail(error)
    if chunks:
        light = all(one.light for one in chunks)
        made = graph.make([*chunks.values()], frames, light=light)
        spent_s = (perf_counter() - started_s) / len(chunks)
        for one, sound in zip(chunks, made, strict=True):
            one.take(sound, spent_s)
    return chosen
