"""Level 0 of several jobs at once."""

from contextlib import closing

import pytest
import torch

from app.engine.backend.synthesizer import Synthesizer
from app.engine.errors import GenerationFailed
from app.engine.interface import Plan
from app.engine.job import SpeechJob
from app.engine.level_0.job import Level0Job
from app.engine.level_0.job_batch import MAX_PREFILLS, JobBatch
from app.engine.level_0.runner import ArRunner
from samplers.knobs.params import SamplingParams

TEXTS = ["One. Two, three.", "Four.", "Five, six.", "Seven."]


@pytest.fixture(scope="module")
def synthesizer(toy) -> Synthesizer:
    return Synthesizer.load(toy, "cpu", weights="int8", threads=1, max_text_chars=200)


def plan(synthesizer: Synthesizer, number: int, **knobs: object) -> Plan:
    params = SamplingParams.model_validate({"seed": number, "ban_tokens": (512,), **knobs})
    return synthesizer.plan(
        SpeechJob(f"job-{number}", TEXTS[number % 4], params, max_duration_s=0.6)
    )


def codes(drawing: Level0Job) -> list[int]:
    return torch.cat([drawn.codes for drawn in drawing.news()]).tolist()


def alone(synthesizer: Synthesizer, job: Plan) -> list[int]:
    with closing(synthesizer.batch(job.rows)) as batch:
        drawing = batch.begin(job)
        while not drawing.over:
            batch.step([drawing])
        return codes(drawing)


def test_jobs_that_come_pause_and_go_have_the_codes_that_they_have_alone(synthesizer):
    jobs = [plan(synthesizer, number) for number in range(4)]
    jobs[1] = plan(synthesizer, 1, cfg_strength=2.0)
    with closing(synthesizer.batch(8)) as batch:
        first = [batch.begin(job) for job in jobs[:2]]
        for _ in range(7):
            batch.step(first)
        everybody = [*first, *(batch.begin(job) for job in jobs[2:])]
        batch.step(everybody)
        for _ in range(5):
            batch.step(everybody[1:])  # the first waits
        left = batch.begin(plan(synthesizer, 9))
        batch.step([*everybody, left])
        batch.end(left)
        while going := [one for one in everybody if not one.over]:
            batch.step(going)
        drawn = [codes(one) for one in everybody]
    assert drawn == [alone(synthesizer, job) for job in jobs]


def test_texts_are_read_a_few_between_two_steps(synthesizer):
    with closing(synthesizer.batch(8)) as batch:
        drawings = [batch.begin(plan(synthesizer, number)) for number in range(MAX_PREFILLS + 1)]
        batch.step(drawings)
        assert sum(drawing.utterance is not None for drawing in drawings) == MAX_PREFILLS
        batch.step(drawings)
        assert all(drawing.utterance is not None for drawing in drawings)


def test_an_utterance_that_is_left_frees_its_rows_at_once(synthesizer):
    with closing(synthesizer.batch(2)) as batch:
        drawing = batch.begin(plan(synthesizer, 0, cfg_strength=2.0))
        batch.step([drawing])
        assert batch._shared.free_rows == 0
        batch.end(drawing)
        assert batch._shared.free_rows == 2
        assert drawing.over


def test_what_cannot_be_read_fails_alone(synthesizer, monkeypatch):
    real = ArRunner.admit

    def admit(batch, inputs):
        if inputs.seed == 1:
            raise torch.OutOfMemoryError("no room on purpose")
        return real(batch, inputs)

    monkeypatch.setattr(ArRunner, "admit", admit)
    jobs = [plan(synthesizer, number) for number in range(3)]
    with closing(synthesizer.batch(8)) as batch:
        drawings = [batch.begin(job) for job in jobs]
        while going := [one for one in drawings if not one.over]:
            batch.step(going)
        assert isinstance(drawings[1].error, GenerationFailed)
        assert [drawings[0].error, drawings[2].error] == [None, None]
        assert codes(drawings[2]) == alone(synthesizer, jobs[2])


def test_an_utterance_too_long_for_the_slots_of_all_has_a_cache_of_its_own(
    synthesizer, monkeypatch
):
    monkeypatch.setattr("app.engine.level_0.job_batch._room", lambda *_: 60)
    job = plan(synthesizer, 0)
    with closing(synthesizer.batch(2)) as batch:
        assert isinstance(batch, JobBatch)
        drawing = batch.begin(job)
        batch.step([drawing])
        assert batch._shared.free_rows == 2
        while not drawing.over:
            batch.step([drawing])
        drawn = codes(drawing)
    monkeypatch.undo()
    assert drawn == alone(synthesizer, job)
