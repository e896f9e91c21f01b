"""Chunks of known codes in one recorded function: the codec of several utterances."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from app.engine.job import Samples
from app.engine.sound.chunks import chunk_lengths
from app.engine.sound.recorded.codec_streams import CodecStreams
from models.checkpoints import SpeechModel
from models.cuda.graphs import WARM_UPS, Play, Record
from models.cuda.transfers import Download, Upload

_STREAM, _BEGINS, _NUMBERS = 0, 1, 2
_DEPTH = 2  # of chunks on their way


class CodecRow(NamedTuple):
    """The next chunk of one utterance.

    Attributes:
        stream: Of `CodecStreams`.
        begins: Whether its stream begins with this chunk.
        codes: ``[n, <= K]`` int64.
    """

    stream: int
    begins: bool
    codes: NDArray[np.int64]


class CodecGraph:
    """The recorded chunks over one table of streams. One thread only.

    Attributes:
        frames: The numbers of frames of a chunk; a last one is filled up.
        most: The most chunks at once.
    """

    @torch.inference_mode()
    def __init__(
        self,
        speech: SpeechModel,
        streams: CodecStreams,
        *,
        record: Record,
        rows: Sequence[int],
        warm_ups: int = WARM_UPS,
    ) -> None:
        """Allocate everything, and record all functions.

        Args:
            speech: On the device to use.
            streams: What its codec remembers.
            record: Records functions.
            rows: Numbers of chunks to choose from, ascending.
            warm_ups: How often each function is called first.
        """
        self._streams, self._rows, self.most = streams, rows, rows[-1]
        self.frames = chunk_lengths(speech.model.config.block_frames)
        self._levels, self._hop = speech.model.config.levels, speech.codec.config.hop
        self._idle = np.zeros((rows[-1], _NUMBERS + self.frames[-1] * self._levels), np.int64)
        self._idle[:, _STREAM], self._idle[:, _BEGINS] = streams.unused, 1
        self._host, device = self._idle.copy(), speech.model.separator.device
        self._table = torch.zeros(self._host.shape, dtype=torch.int64, device=device)
        self._upload = Upload(self._table, _DEPTH)
        self._upload.send(self._host)
        self._results = {
            size: torch.zeros(size[0], size[1] * self._hop, device=device)
            for size in product(rows, self.frames)
        }
        self._downloads = {size: Download(own, _DEPTH) for size, own in self._results.items()}
        self._plays: dict[tuple[int, int], Play] = {}
        for size in product(reversed(rows), reversed(self.frames)):
            self._plays[size] = record(self._function(*size), warm_ups=warm_ups)

    def make(self, chunks: Sequence[CodecRow]) -> list[Samples]:
        """Decode some chunks, and wait for them.

        Args:
            chunks: Of utterances of their own, at most `most`.
        """
        frames = self.filled_up(max(len(chunk.codes) for chunk in chunks))
        size = next(rows for rows in self._rows if rows >= len(chunks)), frames
        self._host[:] = self._idle
        for own, chunk in zip(self._host, chunks, strict=False):
            own[_STREAM], own[_BEGINS] = chunk.stream, chunk.begins
            codes = own[_NUMBERS:].reshape(-1, self._levels)
            codes[:, chunk.codes.shape[1] :] = -1
            codes[: len(chunk.codes), : chunk.codes.shape[1]] = chunk.codes
            codes[len(chunk.codes) :] = codes[len(chunk.codes) - 1]  # padding, which is cut off
        self._upload.send(self._host)
        self._plays[size]()
        download = self._downloads[size]
        found = download.wait(download.fetch())
        return [
            found[row, : len(chunk.codes) * self._hop].copy() for row, chunk in enumerate(chunks)
        ]

    def filled_up(self, count: int) -> int:
        """Return the frames of the recorded chunk that holds so many."""
        return next(frames for frames in self.frames if frames >= count)

    def close(self) -> None:
        """Forget all functions; nothing can be made any more."""
        self._plays.clear()

    def _function(self, rows: int, frames: int) -> Callable[[], None]:
        """Return the chunks of the first rows, to be recorded."""
        table, results = self._table[:rows], self._results[rows, frames]
        codes = table[:, _NUMBERS:].view(rows, -1, self._levels)[:, :frames]

        def chunk() -> None:
            samples = self._streams.sound(
                codes.clamp(min=0), codes >= 0, table[:, _STREAM], table[:, _BEGINS] > 0
            )
            results.copy_(samples)

        return chunk
