"""Utterances of models whose frames all see each other: windows, then chunks of the codec."""

from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.sound.alignment import Decoded
from app.engine.sound.chunks import Chunks
from app.engine.sound.decoding import ChunkDecoder
from app.engine.sound.nar_windowed import Window, Windows
from app.engine.sound.recorded.codec_graph import CodecRow
from app.engine.sound.recorded.utterance import RecordedUtterance
from app.engine.sound.recorded.window_graph import WindowGraph
from app.engine.sound.recorded.window_row import WindowRow
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.config import BOS_ID, EOS_ID
from models.prefix_cache import PrefixCache
from models.whole_passes import number_prefix
from samplers.ops.bounds import within


class WindowedUtterance(RecordedUtterance):
    """An utterance that a `WindowGraph` draws and decodes; see `RecordedUtterance`.

    Its work is a queue of windows and of chunks, each chunk behind the window that completes it.
    """

    def __init__(
        self,
        speech: SpeechModel,
        inputs: UtteranceInput,
        prefixes: PrefixCache,
        graph: WindowGraph,
        stream: int,
    ) -> None:
        """Number the prefixes.

        Args:
            speech: The graph's.
            inputs: What is spoken.
            prefixes: For the alignment, if there is one.
            graph: Draws its windows.
            stream: Of the graph's streams.
        """
        super().__init__(speech, inputs, prefixes, graph.streams, stream)
        self._graph = graph
        model, params, language = speech.model, inputs.params, inputs.language
        levels = model.config.levels
        prompt = (
            torch.zeros(0, levels, dtype=torch.int64) if inputs.prompt is None else inputs.prompt
        )
        self._prompt: NDArray[np.int64] = prompt.cpu().numpy()
        ids, prompted = [inputs.phoneme_ids, [BOS_ID, EOS_ID]], (len(self._prompt), 0)
        self._prefixes = [
            number_prefix(model, ids[one], language=language, prompt_frames=prompted[one])
            for one in range(self.rows)
        ]
        self._windows = Windows(
            params.nar_window_frames, params.nar_left_context_frames, params.nar_lookahead_frames
        )
        self._chunks = Chunks(model.config.block_frames)
        self._level_0 = torch.zeros(0, dtype=torch.int64)
        self._drawn = np.zeros((0, levels), np.int64)
        self._decoded_frames = 0
        self._work: deque[Window | int] = deque()  # an int is a chunk of so many frames

    @property
    def waits(self) -> bool:
        """Whether a window or a chunk is to be made."""
        return bool(self._work)

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take the next frames of level 0; see `RecordedUtterance.push`."""
        self._level_0 = torch.cat([self._level_0, codes])
        chunks = list[int]()
        for window in self._windows.up_to(len(self._level_0), ended=ended):
            completed = [*map(len, self._chunks.push(self._level_0[window.start : window.end]))]
            self._work += [window, *completed]
            chunks += completed
        if ended:
            self._chunks.push(self._level_0[:0])
            if rest := len(self._chunks.rest()):
                self._work.append(rest)
                chunks.append(rest)
        return self._decoded(len(chunks))

    @torch.inference_mode()
    def make_with(self, others: Sequence[RecordedUtterance]) -> Sequence[RecordedUtterance]:
        """Draw what it waits for, and make its next chunk; see `RecordedUtterance`.

        Others have windows drawn or chunks made along with its own, whichever comes next for them.
        """
        group = [self, *(one for one in others if isinstance(one, WindowedUtterance))]
        before = {one: len(one._made) for one in group}
        while self._work and len(self._made) == before[self]:
            window = isinstance(self._work[0], Window)
            alike = [one for one in group if one._work]
            alike = [one for one in alike if isinstance(one._work[0], Window) == window]
            if window:
                self._draw_with(alike)
            else:
                self._decode_with(alike)
        return [one for one in group if len(one._made) > before[one]]

    def _draw_with(self, group: Sequence["WindowedUtterance"]) -> None:
        """Draw the next windows of some utterances, itself first, that are padded alike."""
        started_s, graph = perf_counter(), self._graph
        columns, rows = graph.filled_up(self._columns), 0
        chosen: dict[WindowedUtterance, WindowRow] = {}
        for one in group:
            alike = graph.filled_up(one._columns) == columns
            if alike and graph.holds(rows + one.rows, columns):
                chosen[one] = one._row()
                rows += one.rows
        light = all(one.light for one in chosen)
        drawn = graph.draw([*chosen.values()], light=light)
        spent_s = (perf_counter() - started_s) / len(chosen)
        for one, codes in zip(chosen, drawn, strict=True):
            window = one._work.popleft()
            assert isinstance(window, Window)
            own = codes[window.start - window.first : window.end - window.first]
            one._drawn = np.concatenate([one._drawn, own])
            one.nar_s += spent_s

    def _decode_with(self, group: Sequence["WindowedUtterance"]) -> None:
        """Decode the next chunks of some utterances, itself first, that are filled up alike."""
        if self._is_short:
            self._decode_alone()
            return
        started_s, codec = perf_counter(), self._graph.codec
        frames = codec.filled_up(self._frames)
        chosen = [
            one for one in group if codec.filled_up(one._frames) == frames and not one._is_short
        ][: codec.most]
        rows = [one._codec_row() for one in chosen]
        sounds = codec.make(rows)
        spent_s = (perf_counter() - started_s) / len(chosen)
        for one, row, samples in zip(chosen, rows, sounds, strict=True):
            one.codec_s += spent_s
            one._take_chunk(row.codes, samples)

    @property
    def _columns(self) -> int:
        """Positions of its next window."""
        window = self._work[0]
        assert isinstance(window, Window)
        return window.last - window.first + max(len(one.marks) for one in self._prefixes)

    @property
    def _frames(self) -> int:
        """Frames of its next chunk."""
        count = self._work[0]
        assert isinstance(count, int)
        return count

    @property
    def _is_short(self) -> bool:
        """Whether its next chunk is all there is, and less than a block.

        A codec that pads by reflection needs all of it at once.
        """
        return not self._decoded_frames and self._frames < self._speech.model.config.block_frames

    def _row(self) -> WindowRow:
        window, params = self._work[0], self._inputs.params
        assert isinstance(window, Window)
        given = self._given(window.first, self._level_0[window.first : window.last])
        before = self._drawn[window.first : window.start]
        given[: len(before)] = before
        return WindowRow(
            window.first, given, self._prompt, self._knobs, self._prefixes,
            within(params.nar_cfg_strength), params.nar_cfg_rescale,
        )  # fmt: skip

    def _codec_row(self) -> CodecRow:
        begin = self._decoded_frames
        codes = self._drawn[begin : begin + self._frames, : self._levels]
        return CodecRow(self._stream, begin == 0, codes)

    def _decode_alone(self) -> None:
        started_s, config = perf_counter(), self._speech.model.config
        codes = self._codec_row().codes
        decoder = ChunkDecoder(self._speech.decoder, config.block_frames)
        device = self._speech.model.separator.device
        samples = np.concatenate([
            decoder.push(torch.from_numpy(codes.copy()).to(device)), decoder.finish(),
        ])  # fmt: skip
        self.codec_s += perf_counter() - started_s
        self._take_chunk(codes, samples)

    def _take_chunk(self, codes: NDArray[np.int64], samples: NDArray[np.float32]) -> None:
        self._work.popleft()
        self._decoded_frames += len(codes)
        self._take(torch.from_numpy(codes.copy()), samples)
