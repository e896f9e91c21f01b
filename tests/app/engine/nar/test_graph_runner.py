"""A graph of chunks: what it waits for and holds, and that it makes what operators make.

What is replayed here comes from a tape, so that nothing of the host can be baked in unseen.
"""

import gc
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.core import AudioChunk
from app.engine.nar.graph_runner import NarGraphRunner
from app.engine.nar.stage import NarStage
from app.engine.nar.state import sample_chunk
from app.engine.utterance import UtteranceSpec
from gpu.transfers import Download, Upload
from models.checkpoints.sources import SpeechModel
from models.codecs.streaming import StreamTable
from models.config import AlignmentHead
from models.stack.paged_passes import PagedPasses
from tests.alone_among.harness import Schedule, among, assert_as_alone
from tests.app.engine.decoding import spoken
from tests.app.engine.nar.sessions import (
    CLOSE,
    SIZES,
    Decoded,
    captured_when_replayed,
    codes_in,
    codes_of,
    decoded_at_once,
    decoder_of,
    masked,
    samples_in,
    utterance,
    with_vocos,
)
from tests.capture.faults import Fault
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch
from tests.models.codecs.test_codec import make as make_codec

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")
CPU = torch.device("cpu")
GUIDED = {"nar_cfg_strength": 2.0}


@pytest.fixture(scope="module")
def tape() -> Tape:
    return Tape()


@pytest.fixture(scope="module")
def decoder(speech: SpeechModel, tape: Tape) -> NarStage:
    return decoder_of(speech, tape.capture)


def test_a_chunk_waits_for_nothing_and_takes_one_graph_beside_two_copies(
    speech: SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Any] = []
    decoder = decoder_of(speech, lambda function, **_: partial(launched.append, function))
    streams = [decoder.begin(utterance(number, {})) for number in (1, 2, 6)]
    for stream in streams:
        stream.feed(codes_of(0, 15), False)
    launched.clear()  # their prefixes
    right, watch = NarGraphRunner.replay, Watch("raise")

    def watched(captured: NarGraphRunner, *args: Any, **more: Any) -> Any:
        with watch.on():
            return right(captured, *args, **more)

    monkeypatch.setattr(NarGraphRunner, "replay", watched)
    assert decoder.make_together(streams) == streams
    assert len(launched) == 1
    kernels = {name: count for name, count in watch.operators.items() if "view" not in name}
    assert set(kernels) <= {"aten.copy_.default", "aten.select.int", "aten.slice.Tensor"}
    assert kernels["aten.copy_.default"] == 2


def test_nothing_is_recorded_after_the_start_and_no_storage_is_replaced(decoder, tape) -> None:
    captured, pool, graphs = decoder.captured, decoder.pool, len(tape.sizes)
    assert captured is not None
    assert pool is not None
    kept = [captured._table, *captured.streams._table._tables.values(), *pool.keys]
    places, replays = [tensor.data_ptr() for tensor in kept], tape.replays
    among(Decoded(decoder, decoder), [1, 2, 3], Schedule(5))
    assert len(tape.sizes) == graphs == 12  # four lengths of two kinds, and of prefixes
    assert tape.replays > replays
    assert [tensor.data_ptr() for tensor in kept] == places


def test_pages_and_streams_come_back(decoder: NarStage) -> None:
    captured, pool = decoder.captured, decoder.pool
    assert captured is not None
    assert pool is not None
    own = replace(utterance(0, {}), voice=None)
    gc.collect()
    used, streams = pool.used_bytes, captured.streams.free
    begun = [decoder.begin(own) for _ in range(SIZES.streams)]
    assert all(one.stream is not None for one in begun)
    assert decoder.begin(own).stream is None  # operator by operator, as none is left
    decoded_at_once(begun[0], codes_of(0, 100))
    assert pool.used_bytes > used
    begun.clear()
    gc.collect()
    assert (pool.used_bytes, captured.streams.free) == (used, streams)


def made_both_ways(
    decoders: tuple[NarStage, NarStage],
    tape: Tape,
    own: UtteranceSpec,
    ar_codes: Tensor,
    levels: int | None = None,
) -> tuple[int, list[AudioChunk], list[AudioChunk]]:
    """Return how many graphs an utterance takes, and what it becomes in two alike decoders."""
    streams = [one.begin(own, levels) for one in decoders]
    before = tape.replays
    found, expected = (decoded_at_once(one, ar_codes) for one in streams)
    replays, sound = tape.replays - before, samples_in(expected)
    assert torch.equal(codes_in(found), codes_in(expected))
    assert samples_in(found).shape == sound.shape == (320 * len(ar_codes),)
    assert np.abs(samples_in(found) - sound).max() <= CLOSE * np.abs(sound).max()
    return replays, found, expected


def test_codes_that_are_known_take_recordings_too_and_sound_alike(speech, decoder, tape) -> None:
    codes, both = codes_of(3, 121, 8), (decoder, NarStage(speech))
    replays, *_ = made_both_ways(both, tape, UtteranceSpec.known(spoken(codes)), codes[:, 0], 8)
    assert replays == 5  # of 15, 15, 30, 45 and 16 frames


@pytest.mark.slow
def test_frames_are_aligned_from_tape_as_they_are_by_themselves(speech) -> None:
    other, tape = masked(speech, "block_causal", alignment=AlignmentHead(layer=0, head=1)), Tape()
    both, own = (decoder_of(other, tape.capture), NarStage(other)), utterance(2)
    _, *made = made_both_ways(both, tape, replace(own, aligned=True), codes_of(2, 100))
    # Prompt and text of the NAR levels and of level 0; four chunks, each of which is aligned.
    assert tape.replays == 2 * 2 + 2 * 4
    for one, same in zip(*([chunk.alignment for chunk in each] for each in made), strict=True):
        assert one is not None
        assert same is not None
        assert one.path.tolist() == same.path.tolist()
        assert np.abs(one.logprobs - same.logprobs).max() < 1e-4


@pytest.mark.slow
def test_vocos_decodes_at_the_end_what_recordings_have_drawn(speech) -> None:
    other, tape = with_vocos(speech), Tape()
    both = decoder_of(other, tape.capture), NarStage(other)
    for frames, chunks in ((3, 1), (100, 4)):
        replays, found, expected = made_both_ways(both, tape, utterance(2), codes_of(2, frames))
        assert replays == chunks
        np.testing.assert_array_equal(samples_in(found), samples_in(expected))


def test_an_utterance_that_is_longer_than_any_row_is_made_by_itself_over_pages(
    speech, decoder, tape
) -> None:
    own, both = replace(utterance(6, GUIDED), max_frames=5000), (decoder, NarStage(speech))
    replays, found, expected = made_both_ways(both, tape, own, codes_of(0, 40))
    assert replays == 0
    np.testing.assert_array_equal(samples_in(found), samples_in(expected))


@pytest.mark.slow
def test_what_fills_up_an_utterance_of_less_than_a_block_is_not_mirrored_into_it(speech) -> None:
    other, tape = replace(speech, codec=make_codec("reflect", codes=512)), Tape()
    both = decoder_of(other, tape.capture), NarStage(other)
    for frames in (1, 2, 6, 7, 14):
        replays, *_ = made_both_ways(both, tape, utterance(frames), codes_of(frames, frames))
        assert replays == 1


FAULTS = {
    "the noise does not know which frame it is for": Fault(
        sample_chunk, "rows.frame, codebooks", "rows.frame * 0, codebooks"
    ),
    "a stream begins with what the one before left in its row": Fault(
        StreamTable.read, "masked_fill(begins[:, None], 0)", "clone()"
    ),
    "what the codec remembers is not copied out": Fault(
        StreamTable.write, "table.index_copy_(0, rows, torch.cat(own, 1))", "pass"
    ),
    "the host writes into another table than the recorded one": Fault(
        Upload.__init__, "self._target = target", "self._target = target.clone()"
    ),
    "sequences are as long as when the chunk was recorded": Fault(
        PagedPasses.layout, "own = ", "lengths = lengths * 0 + 40\n        own = "
    ),
    "the last frames see what fills their block up": Fault(
        PagedPasses.layout, "own = ", "counts = counts * 0 + 60\n        own = "
    ),
    "rows that are not used do what they did in the chunk before": Fault(
        NarGraphRunner.make, "self._idle.copy()", "self._idle"
    ),
    "the host reads what was made before what was just queued": Fault(
        Download.fetch, "return place", "return (place - 1) % self._depth"
    ),
    "the host waits for a chunk": Fault(
        StreamTable.read, "begins[:, None]", "begins[:, None] & bool(begins.any())"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_shows(speech, name, monkeypatch) -> None:
    numbers = [3, 2, 5, 7, 12]
    with monkeypatch.context() as patch:
        FAULTS[name].seed(patch)
        stage = Decoded(decoder_of(speech, captured_when_replayed), NarStage(speech), most=3)
        try:
            found = among(stage, numbers, Schedule(4))
        except (NotCaptureSafe, RuntimeError, IndexError):  # as loud as another result
            return
    with pytest.raises(AssertionError):
        assert_as_alone(stage, numbers, found)
