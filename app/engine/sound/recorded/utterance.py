"""An utterance whose sound is made by recorded functions, with that of others."""

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.alignment import Alignment, Decoded, UtteranceAlignment
from app.engine.sound.decoding import finite
from app.engine.sound.recorded.codec_streams import CodecStreams
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.codecs.vocos import Vocos
from models.prefix_cache import PrefixCache
from samplers.knobs.features import is_guided
from samplers.nar import is_greedy, row_of

_MARKS = 8  # language, level, separators and the like, beside the symbols of a text


def why_eager(speech: SpeechModel, inputs: UtteranceInput, columns: int) -> str | None:
    """Return why the sound of an utterance is not made by a recording; None if it is.

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


class RecordedUtterance(ABC):
    """Makes the sound of one utterance while its level 0 is drawn; see `UtteranceDecoder`.

    Attributes:
        light: Whether its finer levels are greedy and not guided.
        nar_s: Seconds spent on finer levels and what is made along with them, a share of each
            recording.
        codec_s: Seconds spent on the codec alone.
    """

    def __init__(
        self,
        speech: SpeechModel,
        inputs: UtteranceInput,
        prefixes: PrefixCache,
        streams: CodecStreams,
        stream: int,
    ) -> None:
        """Begin before the first frame.

        Args:
            speech: Of the recordings.
            inputs: What is spoken; `why_eager` has nothing to say.
            prefixes: Cache of the keys and values that utterances share.
            streams: What the recordings' codec remembers.
            stream: Taken of them; goes back when this is garbage collected.
        """
        started_s = perf_counter()
        weakref.finalize(self, streams.give, stream)
        self._speech, self._inputs, self._stream = speech, inputs, stream
        model, params = speech.model, inputs.params
        self._levels = 1 + min(params.nar_levels, model.config.levels - 1)
        self._alignment = UtteranceAlignment(model, inputs, prefixes) if inputs.aligned else None
        self._knobs = [
            row_of(
                params, seed=inputs.seed, utterance=inputs.utterance, level=level,
                vocab_size=model.config.codes,
            )
            for level in range(1, model.config.levels)
        ]  # fmt: skip
        self._guided = is_guided(params, "nar")
        self.light = is_greedy(params) and not self._guided
        self._made: deque[Decoded | Exception] = deque()
        self._codes: list[Tensor] = []  # of what was made
        self.nar_s, self.codec_s = perf_counter() - started_s, 0.0

    @property
    def codes(self) -> Tensor:
        """``[T, 1 + levels]`` int64 on the host, as far as they are heard."""
        return torch.cat([torch.zeros(0, self._levels, dtype=torch.int64), *self._codes])

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether something is to be made."""

    @property
    def rows(self) -> int:
        """Rows that its finer levels take."""
        return 1 + self._guided

    @abstractmethod
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

    @abstractmethod
    def make_with(self, others: Sequence["RecordedUtterance"]) -> Sequence["RecordedUtterance"]:
        """Make its next chunk, and those of others that fit in with it.

        Args:
            others: Of the same recordings, that wait too, the most urgent first.

        Returns:
            Those whose chunks were made, or failed.
        """

    def cancel(self) -> None:  # noqa: B027
        """Do nothing: what is held here is garbage collected."""

    def _given(self, first: int, level_0: Tensor) -> NDArray[np.int64]:
        """Return the codes ``[n, K]`` of frames that are not drawn, -1 elsewhere."""
        given = np.full((len(level_0), self._speech.model.config.levels), -1, np.int64)
        kept = self._inputs.kept
        if kept is not None and first < len(kept.codes):
            known = kept.codes[first : first + len(level_0)].numpy()
            given[: len(known), : known.shape[1]] = known
        given[:, 0] = level_0.numpy()
        return given

    def _decoded(self, count: int) -> Iterator[Decoded]:
        """Yield the next chunks that are made, or make them."""
        for _ in range(count):
            if not self._made:
                self.make_with(())
            made = self._made.popleft()
            if isinstance(made, Exception):
                raise made
            yield made

    def _take(self, codes: Tensor, samples: Samples) -> None:
        """Take the next chunk: its codes ``[n, 1 + levels]`` on the host, and its samples."""
        self._codes.append(codes)
        try:
            self._made.append(Decoded(finite(samples), codes, self._aligned(codes[:, 0])))
        except Exception as error:  # of this utterance alone
            self._made.append(error)

    def _aligned(self, level_0: Tensor) -> Alignment | None:
        if self._alignment is None:
            return None
        return self._alignment.push(level_0.to(self._speech.model.separator.device))
