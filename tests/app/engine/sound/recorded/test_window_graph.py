"""Windows that are drawn together have the codes and samples of utterances by themselves.

As in `test_voice_graph`, what is played comes from a tape.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.memory import make_pool
from app.engine.sound.alignment import Decoded
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.recorded.codec_graph import CodecRow
from app.engine.sound.recorded.window_graph import WindowGraph
from app.engine.sound.recorded.window_row import Number, WindowLayout
from app.engine.sound.recorded.windowed import WindowedUtterance
from app.engine.sound.utterance import UtteranceDecoder
from models.checkpoints import SpeechModel, load_speech_model
from models.cuda.graphs import Play
from models.stack.fixed_whole import FixedWhole, WholeLayout
from models.stack.paged_cache import PagePool
from models.whole_passes import WholePasses
from tests.app.engine.sound.recorded.faults import (
    baked_frame,
    lost_state,
    new_table,
    stale_stream,
    unfinished_copy,
)
from tests.app.engine.sound.recorded.sessions import (
    CLOSE,
    KNOBS,
    Session,
    assert_as_alone,
    codes_of,
    heard,
    recorded_when_played,
    utterance,
)
from tests.app.engine.sound.test_utterance import masked
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")
ROWS, COLUMNS, STREAMS = (2, 5), (128, 256), 9
SHAPES: list[dict[str, Any]] = [
    {},
    {"nar_window_frames": 20, "nar_left_context_frames": 30, "nar_lookahead_frames": 5},
    {},
    {"nar_window_frames": 12, "nar_left_context_frames": 0, "nar_lookahead_frames": 0},
]
"""The whole; windows with context; windows of less than a block without any."""


@pytest.fixture(scope="module")
def speech(toy: Any) -> SpeechModel:
    return masked(load_speech_model(toy, torch.device("cpu")), "full")


def decoder_of(
    speech: SpeechModel, record: Callable[..., Play], rows: Sequence[int] = ROWS
) -> LocalSoundDecoder:
    def make_graph(speech: SpeechModel, pool: PagePool | None) -> WindowGraph:
        assert pool is None  # nothing is cached
        return WindowGraph(
            speech, record=record, rows=rows, columns=COLUMNS, streams=STREAMS, warm_ups=0
        )

    decoder = LocalSoundDecoder(speech, lambda: make_pool(speech.model, 4 << 20), make_graph)
    decoder._records = True  # as after `warm_up`, whose chunks would take a while from a tape
    decoder._allocate()
    return decoder


@pytest.fixture(scope="module")
def decoder(speech: SpeechModel, tape: Tape) -> LocalSoundDecoder:
    return decoder_of(speech, tape.record)


def graph_of(decoder: LocalSoundDecoder) -> WindowGraph:
    assert isinstance(decoder.graph, WindowGraph)
    return decoder.graph


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[1:], ids=["windows", "whole", "small windows"])
@pytest.mark.parametrize("kind", range(len(KNOBS)))
def test_each_kind_of_utterance_is_drawn_as_operator_by_operator(
    speech: SpeechModel, decoder: LocalSoundDecoder, kind: int, shape: dict[str, Any]
) -> None:
    session = Session(decoder, kind, [shape])
    session.run([kind, kind + 9], KNOBS[kind])
    assert_as_alone(speech, session, KNOBS[kind])


@pytest.mark.slow
def test_utterances_that_come_and_leave_are_drawn_as_each_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    session = Session(decoder, 1, SHAPES)
    session.run(range(20))
    assert_as_alone(speech, session)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_200_utterances_are_drawn_as_each_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    session = Session(decoder, 2, SHAPES)
    session.run(range(100, 300))
    assert len(session.sounds) == 200
    assert_as_alone(speech, session)
    assert max(session.together) >= 4


def begun(
    decoder: LocalSoundDecoder, numbers: Sequence[int], frames: int = 40
) -> list[WindowedUtterance]:
    """Begin greedy utterances of which all frames are known."""
    streams = [decoder.begin(utterance(number, {})) for number in numbers]
    for number, stream in zip(numbers, streams, strict=True):
        stream.push(codes_of(number, frames), ended=True)
    return [stream for stream in streams if isinstance(stream, WindowedUtterance)]


def test_the_whole_of_several_utterances_is_one_pass_and_so_is_a_chunk_of_each(
    decoder: LocalSoundDecoder,
) -> None:
    graph, streams = graph_of(decoder), begun(decoder, [1, 2, 6, 9])
    launched: list[Any] = []

    def noted(plays: dict[Any, Play]) -> dict[Any, Play]:
        def play(size: Any) -> None:
            launched.append(size)
            plays[size]()

        return {size: partial(play, size) for size in plays}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "_plays", noted(graph._plays))
        patch.setattr(graph.codec, "_plays", noted(graph.codec._plays))
        assert decoder.make_together(streams) == streams
    assert launched == [(5, 128, True), (5, 15)]
    for number, stream in zip([1, 2, 6, 9], streams, strict=True):
        expected = heard(list(UtteranceDecoder(
            decoder._speech, utterance(number, {}), decoder._prefixes
        ).push(codes_of(number, 40), ended=True)))  # fmt: skip
        made = stream._made[0]
        assert isinstance(made, Decoded)
        first = heard([made])
        assert len(first) == 15 * 320
        assert np.abs(first - expected[: len(first)]).max() <= CLOSE * np.abs(expected).max()


def test_a_window_waits_for_nothing_and_takes_one_graph_beside_two_copies(
    decoder: LocalSoundDecoder,
) -> None:
    graph, streams = graph_of(decoder), begun(decoder, [1, 2, 6])
    windows = [stream._row() for stream in streams]
    chunks = [CodecRow(number, True, codes_of(0, 15, 8).numpy()) for number in range(3)]
    for own, run, size in (
        (graph, partial(graph.draw, windows, light=True), (5, 128, True)),
        (graph.codec, partial(graph.codec.make, chunks), (5, 15)),
    ):
        launched: list[Any] = []
        with pytest.MonkeyPatch.context() as patch, Watch("raise").on() as watch:
            plays = {key: partial(launched.append, key) for key in own._plays}
            patch.setattr(own, "_plays", plays)  # what these hold is the tape's
            run()
        assert launched == [size]
        kernels = {name: count for name, count in watch.operators.items() if "view" not in name}
        assert set(kernels) <= {"aten.copy_.default", "aten.select.int"}
        assert kernels["aten.copy_.default"] == 2


def test_nothing_is_recorded_after_the_start_and_no_storage_is_replaced(
    decoder: LocalSoundDecoder, tape: Tape
) -> None:
    graph, recordings = graph_of(decoder), len(tape.sizes)
    kept = [
        *(upload._target for upload in graph._uploads.values()),
        *(download._source for download in graph._downloads.values()),
        *graph.streams._table._tables.values(), graph.codec._table, graph._passes.marks,
    ]  # fmt: skip
    places, plays = [tensor.data_ptr() for tensor in kept], tape.plays
    Session(decoder, 5, SHAPES).run([1, 2, 3])

    # Four sizes of two kinds, and chunks of four lengths for both numbers of rows.
    assert len(tape.sizes) == recordings == 4 * 2 + 4 * 2
    assert tape.plays > plays
    assert [tensor.data_ptr() for tensor in kept] == places


def test_streams_come_back_and_without_one_an_utterance_is_made_by_itself(
    decoder: LocalSoundDecoder,
) -> None:
    graph = graph_of(decoder)
    gc.collect()
    free = graph.streams.free
    own = [decoder.begin(utterance(0, {})) for _ in range(free)]
    assert all(isinstance(one, WindowedUtterance) for one in own)
    assert isinstance(decoder.begin(utterance(0, {})), UtteranceDecoder)
    own.clear()
    gc.collect()
    assert graph.streams.free == free


def test_an_utterance_that_may_be_too_long_is_made_by_itself(decoder: LocalSoundDecoder) -> None:
    assert isinstance(decoder.begin(replace(utterance(0, {}), max_frames=300)), UtteranceDecoder)


# What the tests above must not let pass: mistakes that a recording forgives.


def _seen_padding(patch: pytest.MonkeyPatch) -> None:
    """Frames see what fills their row up."""
    right = FixedWhole.layout

    def wrong(own: FixedWhole, positions: Tensor, lengths: Tensor) -> WholeLayout:
        return right(own, positions, torch.full_like(lengths, positions.shape[1]))

    patch.setattr(FixedWhole, "layout", wrong)


def _baked_position(patch: pytest.MonkeyPatch) -> None:
    """Positions are those of when the window was recorded."""
    right = FixedWhole.layout

    def wrong(own: FixedWhole, positions: Tensor, lengths: Tensor) -> WholeLayout:
        return right(own, positions.clone().zero_(), lengths)

    patch.setattr(FixedWhole, "layout", wrong)


def _prompt_as_frames(patch: pytest.MonkeyPatch) -> None:
    """The prompt is embedded as frames are."""
    right = WholePasses.embed

    def wrong(own: WholePasses, marks: Tensor, codes: Tensor, frames: Tensor, level: int) -> Tensor:
        return right(own, marks, codes, torch.ones_like(frames), level)

    patch.setattr(WholePasses, "embed", wrong)


def _alone(patch: pytest.MonkeyPatch, column: Number) -> None:
    right = WindowLayout.write

    def wrong(layout: WindowLayout, table: Any, windows: Any) -> list[int]:
        rows = right(layout, table, windows)
        table[:, column] = range(len(table))
        return rows

    patch.setattr(WindowLayout, "write", wrong)


def _unguided(patch: pytest.MonkeyPatch) -> None:
    """The host does not say who guides whom."""
    _alone(patch, Number.PARTNER)


def _lost_owner(patch: pytest.MonkeyPatch) -> None:
    """An unconditional row is fed what it draws itself."""
    _alone(patch, Number.OWNER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        baked_frame, _seen_padding, _baked_position, _prompt_as_frames, stale_stream,
        lost_state, new_table, _unguided, _lost_owner, unfinished_copy,
    ],
)  # fmt: skip
def test_a_seeded_fault_shows(
    speech: SpeechModel, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        session = Session(decoder_of(speech, recorded_when_played), 4, SHAPES)
        try:
            session.run([3, 2, 5])
            gc.collect()  # the next find the rows of these
            session.run([4, 7, 12])
        except (NotCaptureSafe, RuntimeError, IndexError):  # as loud as another result
            return
    with pytest.raises(AssertionError):
        assert_as_alone(speech, session)


def test_a_seeded_wait_shows(speech: SpeechModel) -> None:
    right = WholePasses.embed

    def wrong(own: WholePasses, marks: Tensor, codes: Tensor, frames: Tensor, level: int) -> Tensor:
        return right(own, marks, codes[: len(codes) - int(frames.sum() < 0)], frames, level)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WholePasses, "embed", wrong)
        with pytest.raises(NotCaptureSafe):
            decoder_of(speech, Tape().record, rows=(2,))
