"""What a loaded model finds out about itself before the first job, by speaking."""

from collections import deque
from collections.abc import Callable
from contextlib import closing
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch

from app.engine.admission import Capacity
from app.engine.interface import Backend, Batch, Plan
from app.engine.job import SpeechJob, SpeechResult
from app.engine.playback import Playback
from app.engine.utterance import Level0Item, Level0Utterance
from samplers.knobs.params import SamplingParams

_TEXTS = ("One, two, three.", "Hello.", "Good morning.")
MEASURED_S = 1.0


def is_deterministic(
    backend: Backend, spoken: Callable[[Plan], SpeechResult], batch_of: Callable[[int], Batch[Any]]
) -> bool:
    """Return whether a job has the same codes alone and among others; warms the model up, too.

    It has not where rounding depends on the number of rows. Batches of ``batch_of`` record nothing.
    """
    # A GPU rounds otherwise for more than a few rows, which seldom changes a code: among three it
    # spoke a third of a second alike, and of whole requests one in ten.
    times, speech_s = (1, 0.3) if backend.info.device == "cpu" else (3, 3.0)
    plans = [
        backend.plan(
            SpeechJob(f"check-{seed}", text, SamplingParams(seed=seed), max_duration_s=speech_s)
        )
        for seed, text in enumerate(times * _TEXTS)
    ]
    alone = [one.codes[:, 0] for one in spoken(plans[0]).utterances]
    with closing(batch_of(sum(plan.rows for plan in plans))) as batch:
        items: list[Level0Item] = []
        jobs = [batch.begin(plans[0], items.append)]
        jobs += [batch.begin(plan, lambda _: None) for plan in plans[1:]]
        while running := [job for job in jobs if not job.over]:
            batch.step(running)
    codes = torch.cat([one.level_0() for one in items if isinstance(one, Level0Utterance)])
    return torch.equal(codes, torch.from_numpy(np.concatenate(alone)).long())


def measure(backend: Backend, costs: Capacity, slots: int) -> Batch[Any]:
    """Speak for about a second and note what each stage costs; returns the batch.

    Both stages run in this thread by turns, so where they share a processor, as under a quota, each
    is as slow as it will be.
    """
    plan = backend.plan(SpeechJob("measure", _TEXTS[0], SamplingParams(seed=0), max_duration_s=2))
    batch = backend.batch(max(slots, plan.rows))  # what it records is no part of a start
    began_s = monotonic()
    while monotonic() - began_s < MEASURED_S:
        _measure_once(backend, batch, plan, costs)
    return batch


def _measure_once(backend: Backend, batch: Batch[Any], plan: Plan, costs: Capacity) -> None:
    rate_hz, playback = backend.info.frame_rate_hz, Playback(monotonic())
    with closing(backend.sound_stream(plan, playback)) as sound:
        started_s = perf_counter()
        items: deque[Level0Item] = deque()
        job = batch.begin(plan, items.append)
        costs.note_admission(perf_counter() - started_s)
        while not job.over:
            started_s, frames = perf_counter(), job.frames
            batch.step([job])
            speech_s = (job.frames - frames) / rate_hz
            costs.note_level_0(perf_counter() - started_s, max(0.0, speech_s))
            while items:
                started_s, before_s = perf_counter(), playback.audio_s
                for _ in sound.push(items.popleft()):
                    pass
                costs.note_sound(perf_counter() - started_s, playback.audio_s - before_s)
        batch.end(job)
    if playback.first_s is not None:
        costs.note_start(playback.first_audio_s)
