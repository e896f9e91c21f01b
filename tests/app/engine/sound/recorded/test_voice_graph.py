"""Chunks that are made together have the codes and samples of utterances by themselves.

What is played here comes from a tape, so that nothing of the host can be baked in unseen.
"""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.job import Samples
from app.engine.sound.alignment import Decoded
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.recorded.row import RowLayout
from app.engine.sound.recorded.utterance import RecordedUtterance, why_eager
from app.engine.sound.recorded.voice_graph import VoiceGraph
from app.engine.sound.utterance import UtteranceDecoder
from app.engine.utterance import KeptFrames, UtteranceInput
from models.checkpoints import SpeechModel, load_speech_model
from models.codecs.encodec import Encodec
from models.codecs.spectral import SpectralCodec
from models.codecs.streaming import State, StreamTable
from models.config import MaskKind, SpectralCodecConfig
from models.cuda.graphs import Play
from models.cuda.transfers import Download, Upload
from models.prefix_cache import PrefixCache, VoiceKey
from models.stack.fixed_extend import FixedExtend, Layout
from models.stack.paged_cache import OutOfPages, PagePool
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.nar import NarRows, sample_nar_rows
from samplers.ops import filters
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch
from tests.toy.make_toy import CODEC, MODEL

CPU = torch.device("cpu")
ROWS, COLUMNS, STREAMS = (5,), (256,), 9
POOL_BYTES = 4 << 20
CLOSE = 1e-5
"""Of samples, beside the loudest; the two differ in the order of their float32 sums."""

KNOBS: list[dict[str, Any]] = [
    {},
    {"nar_decision": "mean"},
    {"nar_temperature": 1.0},
    {"nar_temperature": 0.7, "nar_top_k": 40, "nar_top_p": 0.9, "nar_min_p": 0.01},
    {"nar_cfg_strength": 2.0},
    {"nar_cfg_strength": 1.5, "nar_cfg_rescale": 0.2, "nar_temperature": 1.2},
    {"nar_decision": "mean", "nar_top_k": 20},
    {"nar_levels": 3},
    {"nar_level_temperatures": (0.0, 0.5, 1.5), "nar_levels": 5},
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def sorted_as_on_a_gpu() -> Iterator[None]:
    """On a CPU `filters.descending` sorts by NumPy, which no graph could hold."""
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(filters, "descending", lambda x: x.sort(-1, descending=True).values)
        yield


@pytest.fixture(scope="module")
def speech(toy: Any) -> SpeechModel:
    return load_speech_model(toy, CPU)


@pytest.fixture(scope="module")
def tape() -> Tape:
    return Tape()


def decoder_of(
    speech: SpeechModel, record: Callable[..., Play], pool_bytes: int = POOL_BYTES
) -> LocalSoundDecoder:
    def make_graph(speech: SpeechModel, pool: PagePool) -> VoiceGraph:
        return VoiceGraph(
            speech, pool, record=record, rows=ROWS, columns=COLUMNS, streams=STREAMS, warm_ups=0
        )

    decoder = LocalSoundDecoder(speech, pool_bytes, make_graph)
    decoder._records = True  # as after `warm_up`, whose chunks would take a while from a tape
    decoder._allocate()
    return decoder


@pytest.fixture(scope="module")
def decoder(speech: SpeechModel, tape: Tape) -> LocalSoundDecoder:
    return decoder_of(speech, tape.record)


def recorded_when_played(function: Callable[[], object], **_: Any) -> Play:
    """Record a function on a tape when it is played first: tests of faults play few of them."""
    plays: list[Play] = []

    def play() -> None:
        if not plays:
            plays.append(Tape().record(function))
        plays[0]()

    return play


def codes_of(number: int, frames: int, levels: int | None = None) -> Tensor:
    shape = (frames,) if levels is None else (frames, levels)
    return torch.randint(512, shape, generator=torch.Generator().manual_seed(number))


def utterance(number: int, knobs: dict[str, Any] | None = None) -> UtteranceInput:
    draw = random.Random(number)
    own = KNOBS[number % len(KNOBS)] if knobs is None else knobs
    kept = KeptFrames(codes_of(number + 1, draw.randint(1, 40), 8)) if number % 4 == 3 else None
    return UtteranceInput(
        [1, *(draw.randint(10, 20) for _ in range(draw.randint(1, 12))), 2],
        SamplingParams.model_validate(own), number, number % 3, 130,
        prompt=codes_of(number % 2, 20 + 7 * (number % 2), 8) if number % 5 else None,
        voice=VoiceKey(None, f"voice {number % 2}", 0) if number % 5 else None, kept=kept,
    )  # fmt: skip


def length_of(number: int) -> int:
    return random.Random(-number).choice([3, 15, 16, 44, 60, 75, 121])


def heard(decoded: Sequence[Decoded]) -> Samples:
    return np.concatenate([np.zeros(0, np.float32), *(one.samples for one in decoded)])


def alone(
    speech: SpeechModel, number: int, knobs: dict[str, Any] | None = None
) -> tuple[Tensor, Samples]:
    """Return codes and samples of an utterance that is decoded operator by operator."""
    inputs, level_0 = utterance(number, knobs), codes_of(number, length_of(number))
    own = UtteranceDecoder(speech, inputs, PrefixCache(speech.model))
    samples = heard([*own.push(level_0), *own.push(level_0[:0], ended=True)])
    return own.codes, samples


class Session:
    """Utterances whose frames come by and by, whose chunks are made with those of others."""

    def __init__(self, decoder: LocalSoundDecoder, seed: int) -> None:
        self.decoder, self.chance = decoder, random.Random(seed)
        self.sounds: dict[int, tuple[Tensor, Samples]] = {}
        self.together: list[int] = []

    def run(self, numbers: Sequence[int], knobs: dict[str, Any] | None = None) -> None:
        """Decode utterances, at most eight at once; now and then one more begins and leaves."""
        waiting, chance, decoder = list(numbers), self.chance, self.decoder
        running: dict[int, tuple[Any, Tensor, list[Decoded], list[Iterator[Decoded]]]] = {}
        while waiting or running:
            while waiting and len(running) < 8 and chance.random() < 0.7:
                number = waiting.pop(0)
                stream = decoder.begin(utterance(number, knobs))
                running[number] = stream, codes_of(number, length_of(number)), [], []
                if chance.random() < 0.2:
                    left = decoder.begin(utterance(chance.choice(numbers), knobs))
                    list(left.push(codes_of(99, 20)))
                    left.cancel()
                    del left
            for number, (stream, level_0, decoded, sounds) in [*running.items()]:
                if chance.random() < 0.7:  # frames come while chunks wait
                    count = chance.randint(1, 20)
                    ended = len(level_0) <= count
                    sounds.append(stream.push(level_0[:count], ended=ended))
                    running[number] = stream, level_0[count:], decoded, sounds
                    if ended:
                        self._finish(number, running)
            streams = [stream for stream, *_ in running.values() if stream.waits]
            chance.shuffle(streams)
            if streams and chance.random() < 0.25:
                self.together.append(len(decoder.make_together(streams)))
            for _, _, decoded, sounds in running.values():
                if sounds and chance.random() < 0.1:
                    decoded += sounds.pop(0)

    def _finish(self, number: int, running: dict[int, Any]) -> None:
        stream, _, decoded, sounds = running.pop(number)
        others = [other for other, *_ in running.values()]
        self.together.append(len(self.decoder.make_together([stream, *others])))
        for sound in sounds:
            decoded += sound
        self.sounds[number] = stream.codes.cpu(), heard(decoded)


def assert_as_alone(
    speech: SpeechModel, session: Session, knobs: dict[str, Any] | None = None
) -> None:
    for number, (codes, samples) in session.sounds.items():
        expected, sound = alone(speech, number, knobs)
        assert torch.equal(codes, expected), (number, utterance(number, knobs).params)
        assert samples.shape == sound.shape
        assert np.abs(samples - sound).max(initial=0) <= CLOSE * np.abs(sound).max(initial=1)


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
    assert graph is not None
    for stream in streams:
        stream.push(codes_of(0, 15))
    chunks = [stream.row() for stream in streams if isinstance(stream, RecordedUtterance)]
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
    assert graph is not None
    assert pool is not None
    kept = [graph._table, *graph._results.values(), *graph._streams._tables.values(), *pool.keys]
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
    used, streams = pool.used_bytes, len(graph._free)
    begun = [decoder.begin(own) for _ in range(STREAMS)]
    assert all(isinstance(one, RecordedUtterance) for one in begun)
    assert isinstance(decoder.begin(own), UtteranceDecoder)  # operator by operator, as none is left
    list(begun[0].push(codes_of(0, 100), ended=True))
    assert pool.used_bytes > used
    begun.clear()
    gc.collect()
    assert (pool.used_bytes, len(graph._free)) == (used, streams)


def test_of_chunks_together_the_one_without_a_page_fails_alone(
    speech: SpeechModel, decoder: LocalSoundDecoder
) -> None:
    graph, pool = decoder.graph, decoder.pool
    assert graph is not None
    assert pool is not None
    greedy: dict[str, Any] = {}
    first, second = decoder.begin(utterance(0, greedy)), decoder.begin(utterance(5, greedy))
    sounds = [one.push(codes_of(number, 15)) for number, one in ((0, first), (5, second))]
    taken = pool.take(pool.free)
    rows = [one.row for one in (first, second) if isinstance(one, RecordedUtterance)]
    assert len(rows) == 2
    with pytest.MonkeyPatch.context() as patch:

        def without_page() -> Any:
            raise OutOfPages("none is left")

        patch.setattr(first, "row", without_page)
        pool.give(taken)
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
    assert why_eager(speech, inputs)
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


def _baked_frame(patch: pytest.MonkeyPatch) -> None:
    """The noise does not know which frame it is for."""

    def wrong(logits: Tensor, rows: NarRows, at: Tensor, *rest: Any, **kind: Any) -> Tensor:
        return sample_nar_rows(logits, rows, at * 0, *rest, **kind)

    patch.setattr("app.engine.sound.recorded.voice_graph.sample_nar_rows", wrong)


def _stale_stream(patch: pytest.MonkeyPatch) -> None:
    """A stream begins with what the one before left in its row."""
    right = StreamTable.read

    def wrong(table: StreamTable, rows: Tensor, begins: Tensor) -> State:
        return right(table, rows, torch.zeros_like(begins))

    patch.setattr(StreamTable, "read", wrong)


def _lost_state(patch: pytest.MonkeyPatch) -> None:
    """What the codec remembers is not copied out of the recording."""
    patch.setattr(StreamTable, "write", lambda *_: None)


def _new_table(patch: pytest.MonkeyPatch) -> None:
    """The host writes into another table than the one that was recorded."""
    right = Upload.__init__

    def wrong(upload: Upload, target: Tensor, *rest: int) -> None:
        right(upload, target.clone(), *rest)

    patch.setattr(Upload, "__init__", wrong)


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


def _unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    """The host reads the chunk before the one that has just been queued."""
    right, kept = Download.fetch, dict[int, int]()

    def wrong(download: Download) -> int:
        ticket = right(download)
        return kept.setdefault(id(download), ticket)

    patch.setattr(Download, "fetch", wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        _baked_frame, _stale_stream, _lost_state, _new_table, _baked_length, _seen_padding,
        _stale_rows, _unfinished_copy,
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
