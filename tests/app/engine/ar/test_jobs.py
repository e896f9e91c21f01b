"""Level 0 of several jobs together, and of those that go on with what earlier ones spoke."""

import gc
import weakref
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.engine.ar.job import ArJob
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.stage import MAX_PREFILLS, ArBatch, ArStage
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import Plan, SpeechJob, SpeechPart, SpeechResult
from app.engine.growing import JobChain
from app.engine.messages import ArMessage, UtteranceDone
from app.engine.utterance import UtteranceSpec
from gpu.kernels import FUSED, TORCH
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from models.text import Utterance
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of

TEXTS = ["One. Two, three.", "Four.", "Five, six.", "Seven."]


@pytest.fixture(scope="module")
def synthesizer(toy) -> Synthesizer:
    return Synthesizer.load(settings_of(toy, weights="int8", max_text_chars=200))


def plan(synthesizer: Synthesizer, number: int, most_s: float = 0.6, **knobs: object) -> Plan:
    params = SamplingParams.model_validate({"seed": number, "ban_tokens": (512,), **knobs})
    job = SpeechJob(f"job-{number}", TEXTS[number % 4], params, max_duration_s=most_s)
    return synthesizer.planner.plan(job)


def begin(batch: ArStage, plan: Plan) -> tuple[ArJob, list[ArMessage]]:
    """Begin a job; return it and the list that its items come to."""
    items: list[ArMessage] = []
    return batch.begin(plan, items.append), items


def ends(messages: list[ArMessage]) -> list[UtteranceDone]:
    return [message for message in messages if message.kind == "done"]


def codes(messages: list[ArMessage]) -> list[int]:
    return torch.cat([told.codes for told in messages if told.kind in {"frames", "done"}]).tolist()


def finish(batch: ArStage, *jobs: ArJob) -> None:
    while running := [job for job in jobs if not job.over]:
        batch.step(running)


def drawn_by(batch: ArStage, plan: Plan) -> tuple[SequenceOrGroup, list[ArMessage]]:
    """Finish a job of one utterance; return that, and its messages."""
    job, messages = begin(batch, plan)
    sampled = None
    while not job.over:
        batch.step([job])
        sampled = job.utterance or sampled
    assert isinstance(sampled, SequenceOrGroup)
    return sampled, messages


def finished(synthesizer: Synthesizer, plan: Plan) -> list[ArMessage]:
    """Return the items of a job by itself."""
    with closing(synthesizer.ar.batch(plan.rows)) as batch:
        job, items = begin(batch, plan)
        finish(batch, job)
    assert job.error is None
    return items


def test_final_frames_are_handed_on_once_in_whole_blocks_and_none_that_is_rewound(synthesizer):
    eager = {"backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2}
    knobs = eager | {"backtrack_window": 8, "temperature": 0.3}
    block = synthesizer.speech.model.config.block_frames
    blocks, backtracks = 0, 0
    for seed in (1, 5, 9):
        with closing(synthesizer.ar.batch(1)) as batch:
            sampled, (first, *others, last) = drawn_by(batch, plan(synthesizer, seed, **knobs))
        assert (first.kind, last.kind) == ("started", "done")
        handed = [message.codes for message in others if message.kind == "frames"]
        assert len(handed) == len(others)
        assert all(len(frames) == block for frames in handed)
        assert codes([*others, last]) == sampled.ar_codes().tolist()
        blocks, backtracks = blocks + len(others), backtracks + len(sampled.backtracks)
    assert blocks
    assert backtracks


def test_a_few_utterances_are_prefilled_between_two_steps(synthesizer):
    with closing(synthesizer.ar.batch(8)) as batch:
        jobs = [begin(batch, plan(synthesizer, number))[0] for number in range(MAX_PREFILLS + 1)]
        batch.step(jobs)
        assert sum(job.utterance is not None for job in jobs) == MAX_PREFILLS
        batch.step(jobs)
        assert all(job.utterance is not None for job in jobs)


def test_a_device_that_is_lost_in_a_prefill_ends_the_batch_and_no_job(synthesizer, monkeypatch):
    def admit(*_: object) -> None:
        raise torch.AcceleratorError("CUDA error, on purpose")

    monkeypatch.setattr(ArBatch, "admit", admit)
    with closing(synthesizer.ar.batch(8)) as batch:
        job, _ = begin(batch, plan(synthesizer, 1))
        with pytest.raises(torch.AcceleratorError):
            batch.step([job])
        assert job.error is None


def test_a_pause_between_two_sentences_took_no_seconds_of_steps(synthesizer):
    """Its end would else repeat the seconds of the sentence before it."""
    wanted = plan(synthesizer, 0, 9.0)
    texts = (*wanted.utterances, Utterance("", ""))[::-1] * 2
    wanted = replace(wanted, utterances=texts, speakers=wanted.speakers * len(texts))
    spoken = [bool(utterance.phonemes) for utterance in wanted.utterances]
    assert spoken.count(False) == 2
    assert [end.ar_s > 0 for end in ends(finished(synthesizer, wanted))] == spoken


def test_a_closed_batch_that_is_still_held_holds_no_cache(synthesizer):
    batch = synthesizer.ar.batch(2)
    cache = weakref.ref(batch._shared._runner.cache)
    batch.close()
    gc.collect()
    assert cache() is None


def test_a_batch_that_is_begun_while_the_weights_are_away_brings_them_back(synthesizer):
    synthesizer.memory.unload(lambda: True)
    assert not synthesizer.memory.offloader.at_home
    with closing(synthesizer.ar.batch(2)):
        assert synthesizer.memory.offloader.at_home


@pytest.mark.slow
def test_of_a_context_that_would_be_too_long_the_oldest_is_left_out(synthesizer, monkeypatch):
    one = plan(synthesizer, 1, 9.0, context_utterances=3)
    one = replace(one, utterances=one.utterances * 4, speakers=one.speakers * 4)

    def started() -> list[UtteranceSpec]:
        items = finished(synthesizer, one)
        return [message.inputs for message in items if message.kind == "started"]

    whole = started()
    longest = whole[-1].ar_positions(synthesizer.speech.model)
    monkeypatch.setattr("app.engine.ar.spec_builder.MAX_POSITIONS", longest - 1)
    short = started()
    *_, before, last = ([each.codes.tolist() for each in inputs.context] for inputs in whole)
    assert [len(inputs.context) for inputs in whole[-4:]] == [0, 1, 2, 3]
    assert [len(inputs.context) for inputs in short[-4:]] == [0, 1, 2, 2]
    assert [each.codes.tolist() for each in short[-1].context] == last[1:] != before


@pytest.mark.slow
@pytest.mark.parametrize(("kernels", "alone"), [(FUSED, 0), (TORCH, 1)], ids=["fused", "torch"])
def test_the_longest_utterance_has_a_cache_of_its_own_but_over_pages_where_a_kernel_attends(
    toy, kernels, alone, monkeypatch
):
    of = Synthesizer.load(settings_of(toy, weights="float32"))
    model, before = of.speech.model, of.spoken(plan(of, 0, 0.2).job)
    (spoken, *_), sampled = before.utterances, np.arange(4000) % 512
    spoken = replace(spoken, codes=np.repeat(sampled[:, None], 8, 1).astype(np.int16))
    one = plan(of, 1, 54.0, context_utterances=1)
    told = replace(before, utterances=(spoken,), frames=4000)
    one = replace(one, job=replace(one.job, part=SpeechPart(told)))
    monkeypatch.setattr(model.transformer, "kernels", kernels)
    pool = PagePool(model.config, 99, dtype=torch.float32, device=torch.device("cpu"))
    prefixes = PrefixCache(model, new_cache=pool.new_cache)
    slots, found = of.ar.batch(1), list[list[int]]()
    pages = ArStage(of.speech, slots._make, prefixes, slots=1, pool=pool)
    for batch, free in ((slots, 1), (pages, alone)):
        with closing(batch):
            job, items = begin(batch, one)
            while job.utterance is None and not job.over:
                batch.step([job])
            assert batch._shared.free_rows == free
            finish(batch, job)
        assert job.error is None
        found.append(codes(items))
    assert found[0] == found[1]


def spoken(
    synthesizer: Synthesizer,
    text: str,
    before: SpeechResult | None = None,
    more: bool = False,
    **knobs: object,
) -> SpeechResult:
    params = SamplingParams.model_validate({"seed": 1, **knobs})
    job = SpeechJob("id", text, params, max_duration_s=0.6, part=SpeechPart(before, more))
    return synthesizer.spoken(job)


def joined(*results: SpeechResult) -> SpeechResult:
    chain = JobChain(SpeechJob("id", "", SamplingParams()))
    for result in results:
        chain.add(result)
    assert chain.result is not None
    return chain.result


def test_a_pause_at_the_end_is_owed_where_more_may_follow(synthesizer):
    ended, part = (spoken(synthesizer, "One. [pause:0.5s]", more=more) for more in (False, True))
    assert (ended.pause_owed_s, part.pause_owed_s) == (0.0, 0.5)
    assert ended.codes_sha256 == part.codes_sha256
    assert ended.audio_s - part.audio_s == pytest.approx(0.5)


def test_once_the_limit_is_reached_later_pieces_are_silent(synthesizer):
    before = spoken(synthesizer, "One.", min_frames=1000)
    result = spoken(synthesizer, "Two.", before, min_frames=1000)
    assert (result.audio_s, result.frames, result.finish_reason) == (0, 0, "length")
    both = joined(before, result)
    assert (both.frames, both.codes_sha256) == (before.frames, before.codes_sha256)
    paused = spoken(synthesizer, "One [pause:1s]", more=True, min_frames=1000)
    assert paused.utterances[-1].pause_after_s == 1.0
    assert joined(paused, result).utterances[-1].pause_after_s is None


def test_the_gravest_reason_of_all_is_told(synthesizer):
    cut = spoken(synthesizer, "One.", min_frames=1000)
    ended = spoken(synthesizer, "One.", logit_bias={"512": 99.0}, min_frames=3)
    assert (cut.finish_reason, ended.finish_reason) == ("length", "stop")
    assert joined(cut, ended).finish_reason == joined(ended, cut).finish_reason == "length"
    assert joined(ended, ended).timings.ar_s == 2 * ended.timings.ar_s
