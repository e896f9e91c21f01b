"""Chunks that are made together have the codes and samples of utterances by themselves.

What is played here comes from a tape, so that nothing of the host can be baked in unseen.
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
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.recorded.chunked import ChunkedUtterance
from app.engine.sound.recorded.row import RowLayout
from app.engine.sound.recorded.utterance import RecordedUtterance, why_eager
from app.engine.sound.recorded.voice_graph import VoiceGraph
from app.engine.sound.utterance import UtteranceDecoder
from models.checkpoints import SpeechModel, load_speech_model
from models.codecs.encodec import Encodec
from models.codecs.spectral import SpectralCodec
from models.codecs.streaming import State, StreamTable
from models.config import MaskKind, SpectralCodecConfig
from models.cuda.graphs import Play
from models.cuda.streams import Work
from models.stack.fixed_extend import FixedExtend, Layout
from models.stack.paged_cache import OutOfPages, PagePool
from models.valle import Valle
from tests.app.engine.sound.recorded.faults import (
    baked_frame,
    lost_state,
    new_table,
    stale_stream,
    unfinished_copy,
)
from tests.app.engine.sound.recorded.sessions import (
    KNOBS,
    Session,
    alone,
    assert_as_alone,
    codes_of,
    heard,
    recorded_when_played,
    utterance,
)
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch
from tests.toy.make_toy import CODEC, MODEL

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")
CPU = torch.device("cpu")
ROWS, COLUMNS, STREAMS = (5,), (256,), 9
POOL_BYTES = 4 << 20


@pytest.fixture(scope="module")
def speech(toy: Any) -> SpeechModel:
    return load_speech_model(toy, CPU)


def decoder_of(
    speech: SpeechModel, record: Callable[..., Play], pool_bytes: int = POOL_BYTES
) -> LocalSoundDecoder:
    def make_graph(speech: SpeechModel, pool: PagePool | None) -> VoiceGraph:
        assert pool is not None
        return VoiceGraph(
            speech, pool, record=record, rows=ROWS, columns=COLUMNS, streams=STREAMS, warm_ups=0
        )

    decoder = LocalSoundDecoder(speech, lambda: make_pool(speech.model, pool_bytes), make_graph)
    decoder._records = True  # as after `warm_up`, whose chunks would take a while from a tape
    decoder._allocate()
    return decoder


@pytest.fixture(scope="module")
def decoder(speech: SpeechModel, tape: Tape) -> LocalSoundDecoder:
    return decoder_of(speech, tape.record)


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(KNOBS)))
def test_each_kind_of_utterance_is_drawn_as_operator_by_operator(
    speech: SpeechModel, decoder: LocalSoundDecoder, kind: int
) -> None:
    session = Session(decoder, kind)
    session.run([kind, kind + 9], KNOBS[kind])
    assert_as_alone(speech, session, KNOBS[kind])


def test_utterances_that_come_and_leave_are_drawn_as_each_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    session = Session(decoder, 1)
    session.run(range(20))
    assert_as_alone(speech, session)
    assert max(session.together) >= 4


@pytest.mark.slow
def test_200_utterances_are_drawn_as_each_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    session = Session(decoder, 2)
    session.run(range(100, 300))
    assert len(session.sounds) == 200
    assert_as_alone(speech, session)


def test_a_chunk_waits_for_nothing_and_takes_one_graph_beside_two_copies(
    decoder: LocalSoundDecoder,
) -> None:
    graph, streams = decoder.graph, [decoder.begin(utterance(number, {})) for number in (1, 2, 6)]
    assert isinstance(graph, VoiceGraph)
    for stream in streams:
        stream.push(codes_of(0, 15))
    chunks = [stream.row() for stream in streams if isinstance(stream, ChunkedUtterance)]
    launched: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, Watch("raise").on() as watch:
        plays = {size: partial(launched.append, size) for size in graph._plays}
        patch.setattr(graph, "_plays", plays)  # what these hold is the tape's
        graph.make(chunks, 15, light=True)

    assert launched == [(5, 15, 256, True)]
    kernels = {name: count for name, count in watch.operators.items() if "view" not in name}
    assert set(kernels) <= {"aten.copy_.default", "aten.select.int"}
    assert kernels["aten.copy_.default"] == 2


def test_nothing_is_recorded_after_the_start_and_no_storage_is_replaced(
    decoder: LocalSoundDecoder, tape: Tape
) -> None:
    graph, pool, recordings = decoder.graph, decoder.pool, len(tape.sizes)
    assert isinstance(graph, VoiceGraph)
    assert pool is not None
    kept = [
        graph._table,
        *graph._results.values(),
        *graph.streams._table._tables.values(),
        *pool.keys,
    ]
    places, plays = [tensor.data_ptr() for tensor in kept], tape.plays
    Session(decoder, 5).run([1, 2, 3])

    assert len(tape.sizes) == recordings == 8  # four lengths of two kinds
    assert tape.plays > plays
    assert [tensor.data_ptr() for tensor in kept] == places


def test_pages_and_streams_come_back(decoder: LocalSoundDecoder) -> None:
    graph, pool = decoder.graph, decoder.pool
    assert graph is not None
    assert pool is not None
    own = replace(utterance(0, {}), voice=None)
    gc.collect()
    used, streams = pool.used_bytes, graph.streams.free
    begun = [decoder.begin(own) for _ in range(STREAMS)]
    assert all(isinstance(one, RecordedUtterance) for one in begun)
    assert isinstance(decoder.begin(own), UtteranceDecoder)  # operator by operator, as none is left
    list(begun[0].push(codes_of(0, 100), ended=True))
    assert pool.used_bytes > used
    begun.clear()
    gc.collect()
    assert (pool.used_bytes, graph.streams.free) == (used, streams)


def test_of_chunks_together_the_one_without_a_page_fails_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    graph, pool = decoder.graph, decoder.pool
    assert graph is not None
    assert pool is not None
    greedy: dict[str, Any] = {}
    first, second = decoder.begin(utterance(0, greedy)), decoder.begin(utterance(5, greedy))
    sounds = [one.push(codes_of(number, 15)) for number, one in ((0, first), (5, second))]
    work = Work(CPU)
    taken = pool.take(pool.free, work)
    rows = [one.row for one in (first, second) if isinstance(one, ChunkedUtterance)]
    assert len(rows) == 2
    with pytest.MonkeyPatch.context() as patch:

        def without_page() -> Any:
            raise OutOfPages("none is left")

        patch.setattr(first, "row", without_page)
        pool.give(taken, work)
        assert len(decoder.make_together([first, second])) == 2
    with pytest.raises(OutOfPages):
        list(sounds[0])
    samples = heard(list(sounds[1]))
    assert len(samples) == 15 * 320
    assert np.abs(samples - alone(speech, 5, greedy)[1][: len(samples)]).max() < 1e-3


@pytest.mark.parametrize("knobs", [{"nar_levels": 0}, {}])
def test_what_is_not_recorded_says_why(
    speech: SpeechModel, decoder: LocalSoundDecoder, knobs: dict[str, Any]
) -> None:
    inputs = utterance(0, knobs)
    if not knobs:
        inputs = replace(inputs, max_frames=5000)
    assert why_eager(speech, inputs, COLUMNS[-1])
    assert isinstance(decoder.begin(inputs), UtteranceDecoder)


def vars_of(speech: SpeechModel) -> dict[str, Any]:
    return {name: getattr(speech, name) for name in speech.__dataclass_fields__}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "codec"), [("causal", "encodec"), ("block_causal", "reflect"), ("causal", "spectral")]
)
def test_other_masks_and_codecs_are_drawn_as_operator_by_operator(
    speech: SpeechModel, mask: MaskKind, codec: str
) -> None:
    torch.manual_seed(0)
    model = Valle(MODEL.model_copy(update={"nar_mask": mask, "unified_positions": True}))
    model.load_state_dict(speech.model.state_dict())
    own = vars_of(speech) | {"model": model.eval().requires_grad_(False)}
    if codec == "spectral":
        config = SpectralCodecConfig(
            levels=8, codes=512, width=8, ffn=12, dimension=4, encoder_layers=1, decoder_layers=2
        )
        own["codec"] = SpectralCodec(config).eval().requires_grad_(False)
        own["codec"].quantizer.codebooks.normal_()
    if codec == "reflect":
        changed = CODEC.model_copy(update={"pad_mode": "reflect"})
        own["codec"] = Encodec(changed)
        own["codec"].load_state_dict(speech.codec.state_dict())
        own["codec"].eval().requires_grad_(False)
    other = SpeechModel(**own)
    session = Session(decoder_of(other, recorded_when_played), 3)
    session.run([0, 4, 7, 3, 9, 12])
    assert_as_alone(other, session)


# What the tests above must not let pass: mistakes that a recording forgives.


def _baked_length(patch: pytest.MonkeyPatch) -> None:
    """The sequences are as long as when the chunk was recorded."""
    right = FixedExtend.layout

    def wrong(extend: FixedExtend, starts: Tensor, lengths: Tensor, *rest: Any) -> Layout:
        return right(extend, starts, torch.full_like(lengths, 40), *rest)

    patch.setattr(FixedExtend, "layout", wrong)


def _seen_padding(patch: pytest.MonkeyPatch) -> None:
    """The last frames of an utterance see what fills their block up."""
    right = FixedExtend.layout

    def wrong(
        extend: FixedExtend, starts: Tensor, lengths: Tensor, counts: Tensor, *rest: Any
    ) -> Layout:
        return right(extend, starts, lengths, torch.full_like(counts, 60), *rest)

    patch.setattr(FixedExtend, "layout", wrong)


def _stale_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows that are not used do again what they did in the chunk before."""
    right = RowLayout.write
    before: list[Any] = []

    def wrong(layout: RowLayout, table: Any, chunks: Sequence[Any]) -> list[int]:
        idle = table.copy()
        rows = right(layout, table, chunks)
        if before:
            unused = (table == idle).all(1)
            table[unused] = before[0][unused]
        before[:] = [table.copy()]
        return rows

    patch.setattr(RowLayout, "write", wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        baked_frame, stale_stream, lost_state, new_table, _baked_length, _seen_padding,
        _stale_rows, unfinished_copy,
    ],
)  # fmt: skip
def test_a_seeded_fault_shows(
    speech: SpeechModel, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        session = Session(decoder_of(speech, recorded_when_played), 4)
        try:
            session.run([3, 2, 5, 7, 12])
        except (NotCaptureSafe, RuntimeError, IndexError):  # as loud as another result
            return
    with pytest.raises(AssertionError):
        assert_as_alone(speech, session)


def test_a_seeded_wait_shows(speech: SpeechModel) -> None:
    right = StreamTable.read

    def wrong(table: StreamTable, rows: Tensor, begins: Tensor) -> State:
        return right(table, rows, begins) if bool(begins.any()) else State()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamTable, "read", wrong)
        with pytest.raises(NotCaptureSafe):
            decoder_of(speech, Tape().record)
