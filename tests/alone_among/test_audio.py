"""The NAR levels with their codec, and codecs by themselves, by operators or in one graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from app.engine.nar.stage import NarStage
from models.checkpoints.sources import SpeechModel
from models.codecs.encodec import Encodec
from models.codecs.interface import CodecStream
from models.codecs.spectral import SpectralCodec
from models.codecs.streaming import StreamTable
from models.config import MaskKind
from models.stack.paged_cache import OutOfPages
from tests.alone_among.harness import Schedule, alone_equals_among
from tests.app.engine.nar.sessions import (
    Decoded,
    Decoding,
    captured_when_replayed,
    decoder_of,
    masked,
)
from tests.capture.tape import Tape
from tests.models.codecs.test_codec import KINDS, assert_close, make, some_codes

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")


@pytest.fixture(scope="module")
def replayed(speech: SpeechModel) -> NarStage:
    return decoder_of(speech, Tape().capture)


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("is_replayed", "numbers"),
    [(False, range(20)), (True, range(20)), slow(True, range(100, 145))],
)
def test_an_utterance_has_among_others_the_sound_that_it_has_alone(
    speech: SpeechModel, replayed: NarStage, is_replayed: bool, numbers: Sequence[int]
) -> None:
    single = NarStage(speech)
    stage = Decoded(replayed if is_replayed else NarStage(speech), single)
    alone_equals_among(stage, numbers, Schedule(1, pauses=0.0))
    assert max(stage.made) >= 4 * is_replayed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "codec"), [("causal", "encodec"), ("block_causal", "reflect"), ("causal", "spectral")]
)
def test_other_masks_and_codecs_have_among_others_the_sound_that_they_have_alone(
    speech: SpeechModel, mask: MaskKind, codec: str
) -> None:
    other = masked(speech, mask, unified_positions=True)
    if codec != "encodec":
        other = replace(other, codec=make(codec, codes=512, levels=8))
    stage = Decoded(decoder_of(other, captured_when_replayed), NarStage(other))
    alone_equals_among(stage, [0, 4, 7, 3, 9, 12], Schedule(3))


@dataclass
class WithoutPages(Decoded):
    """Decodes an utterance of a number without a page for its chunks."""

    number: int = 0

    def begin(self, request: int) -> Decoding:
        begun = super().begin(request)
        if request == self.number and begun.stream is not None:
            begun.stream.levels.reserve = no_page  # type: ignore[method-assign,assignment]
        return begun


def no_page(*_: int) -> Any:
    raise OutOfPages("none is left")


def test_an_utterance_that_finds_no_page_fails_alone(
    speech: SpeechModel, replayed: NarStage
) -> None:
    stage = WithoutPages(replayed, NarStage(speech), number=0)
    alone_equals_among(stage, [6, 1, 2, 4, 5, 8], failing=[0])
    assert max(stage.made) >= 2


@dataclass(eq=False)
class Heard:
    """Sound of a stream so far, and where in it the stream is."""

    seed: int
    row: int
    stream: CodecStream
    at: int = 0
    sound: list[Tensor] = field(default_factory=list)


CHUNKS = (15, 15, 30, 45)


@dataclass
class CodecStreams:
    """Codes of some seeds, decoded in pieces of their own streams, or rows of one table; a stage.

    Args:
        table: What has the states of all; without, each stream has its own.
    """

    codec: Encodec | SpectralCodec
    table: StreamTable | None
    free: list[int] = field(default_factory=lambda: [4, 0, 2])

    def has_room(self, request: int) -> bool:
        return bool(self.free)

    def begin(self, request: int) -> Heard:
        return Heard(request, self.free.pop(0), self.codec.stream())

    def step(self, running: Sequence[Heard]) -> None:
        if self.table is None:
            self._push(running)
            return
        sizes = {one: CHUNKS[len(one.sound)] for one in running}
        for size in {*sizes.values()}:
            self._decode(self.table, [one for one in running if sizes[one] == size], size)
        for one in filter(self.is_over, running):
            self.free.append(one.row)

    def _push(self, running: Sequence[Heard]) -> None:
        for one in running:
            size = CHUNKS[len(one.sound)] - 4 * (not one.at)
            one.sound.append(one.stream.push(self._codes(one.seed)[one.at : one.at + size]))
            one.at += size
            if len(one.sound) == len(CHUNKS):
                one.sound[-1] = torch.cat([
                    one.sound[-1],
                    one.stream.push(self._codes(one.seed)[one.at :]),
                    one.stream.finish(),
                ])
                self.free.append(one.row)

    def _decode(self, table: StreamTable, those: Sequence[Heard], size: int) -> None:
        rows = torch.tensor([one.row for one in those])
        state = table.read(rows, torch.tensor([not one.at for one in those]))
        latent = torch.stack([self._latent(one.seed)[one.at : one.at + size] for one in those])
        for one, samples in zip(those, self.codec.sound(latent, state), strict=True):
            one.sound.append(samples)
            one.at += size
        table.write(rows, state)

    def _codes(self, seed: int) -> Tensor:
        return some_codes(self.codec, sum(CHUNKS), seed)

    def _latent(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(sum(CHUNKS), self.codec.config.dimension, generator=generator)

    def is_over(self, running: Heard) -> bool:
        return len(running.sound) == len(CHUNKS)

    def leave(self, running: Heard) -> None:
        if not self.is_over(running):
            self.free.append(running.row)

    def outcome(self, running: Heard) -> Tensor:
        return torch.cat(running.sound)

    def error(self, running: Heard) -> None:
        return None

    def alone(self, request: int) -> Tensor:
        if self.table is None:
            return self.codec.decode(self._codes(request))
        return self.codec.sound(self._latent(request)[None])[0]

    def assert_same(self, found: Tensor, expected: Tensor) -> None:
        assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_table", [False, True], ids=["streams", "rows of a table"])
def test_codes_have_among_others_the_sound_that_they_have_alone(kind: str, has_table: bool) -> None:
    codec = make(kind)
    latent = torch.randn(1, CHUNKS[0], codec.config.dimension)
    stage = CodecStreams(codec, StreamTable(codec, latent, 5) if has_table else None)
    alone_equals_among(stage, range(6), Schedule(1))
