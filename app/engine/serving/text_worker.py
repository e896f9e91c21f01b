"""The worker that plans jobs: converts their texts to phonemes, in a thread of its own."""

from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from app.engine.admission.cost_model import CostModel
from app.engine.admission.durations import pauses_s, spoken_symbols
from app.engine.admission.quota import share
from app.engine.admission.text_pace import KnownText
from app.engine.core import Plan, SpeechJob
from app.engine.errors import InvalidRequest, broken
from app.engine.interface import Reading
from app.engine.model import TextPart
from app.engine.serving.fair_queue import OnPiece, TurnThread
from app.engine.serving.job_queue import JobQueue
from app.engine.serving.outcomes import JobLog
from app.engine.serving.running import JobHandle
from samplers.knobs.features import knob_at_fault

_LEAST = 0.9  # of the usual length of a speech, which has its rests, what its words last at least

TEXT_CHARS = 64
"""What is counted of a text besides its own characters: about as many are read in the time that any
text takes, however short."""


class TextWorker:
    """Plans jobs, whose texts are read by turns.

    Between two pieces of a text whatever comes before its rest is read. So a sentence waits for one
    piece of a long text, some milliseconds, however many long texts there are, and for one text of
    each other client, however short those are.
    """

    def __init__(
        self, queue: JobQueue, outcomes: JobLog, capacity: CostModel, *, slots: int
    ) -> None:
        self._queue = queue
        self._outcomes = outcomes
        self._capacity = capacity
        self._slots = slots
        self._share = share(slots)
        # espeak-ng reads one text at a time in a process, so more threads would only wait.
        self._thread = TurnThread("speech-text")

    @property
    def silent_s(self) -> float:
        """Seconds for which the present piece of a text has been read; 0 if there is none."""
        return self._thread.silent_s

    def read(self, planner: TextPart, job: JobHandle, asked: SpeechJob) -> None:
        """Submit a job to be planned and queued, or refused."""
        length = TEXT_CHARS + len(asked.text)
        self._thread.submit(asked.client, length, partial(self._plan, planner, job, asked))

    def read_more(self, planner: TextPart, job: JobHandle, asked: SpeechJob) -> None:
        """Submit more of the text of a job, all that there is, to be planned."""
        job.asked = asked
        more = partial(self._plan_more, planner, job, asked)
        self._thread.submit(asked.client, TEXT_CHARS, more)

    def preview(self, planner: TextPart, job: SpeechJob) -> "Future[Reading]":
        """Submit the text of a job to be read and not spoken."""
        length = TEXT_CHARS + len(job.text)
        return self._thread.result(job.id, job.client, length, partial(planner.read, job))

    def close(self) -> None:
        """Plan no more jobs."""
        self._thread.close()

    def _plan(self, planner: TextPart, job: JobHandle, asked: SpeechJob, on_piece: OnPiece) -> None:
        """Plan a job and queue it, or refuse it."""
        if job.abandoned is not None:
            return
        known = job.asked or asked
        try:
            plan = planner.plan(known, on_piece)
            self._check_rows(plan)
            self._expect(job, plan)
        except BaseException as error:
            refusal = broken(job.id, error)
        else:
            self._queue.enqueue(job, plan)
            if job.asked is not None and job.asked is not known:  # it came meanwhile
                self._plan_more(planner, job, job.asked, on_piece)
            return
        if self._queue.remove(job):
            self._outcomes.refused(job, refusal)

    def _plan_more(
        self, planner: TextPart, job: JobHandle, asked: SpeechJob, on_piece: OnPiece
    ) -> None:
        """Plan a job anew, unless even more of its text has come."""
        before = job.plan
        if job.abandoned is not None or before is None or asked is not job.asked:
            return
        params = asked.params.model_copy(update={"seed": before.seed})
        try:
            plan = planner.plan(replace(asked, params=params), on_piece)
            self._expect(job, plan)
        except BaseException as error:
            job.refuse(broken(job.id, error))
        else:
            # What came meanwhile is planned next; where text comes faster than it is read, nothing
            # would be spoken if this did not count. Between two pieces more may have been planned.
            if _is_more(plan.job, job.plan or before):
                job.extend(plan)

    def _expect(self, job: JobHandle, plan: Plan) -> None:
        """Note how long the speech of a plan lasts."""
        speech_s = self._capacity.speech_s(spoken_symbols(plan.utterances))
        silence_s = pauses_s(plan.utterances, plan.params.pause_s, more=plan.job.part.more)
        job.playback.expected_s = speech_s + silence_s
        if job.pace is not None:
            job.known = self._known(plan)

    def _known(self, plan: Plan) -> KnownText:
        """Return how much can be sampled of a text that is still written."""
        missing = 0.0
        if plan.job.part.is_open and plan.utterances and not plan.utterances[-1].whole:
            newest = plan.utterances[-1]
            begins = newest.versions[-1].begins
            due = begins[max(0, len(begins) - plan.params.text_lookahead_words)]
            missing = (len(newest.phonemes) - due) / newest.rate
        symbols = spoken_symbols(plan.utterances)
        symbol_s = _LEAST * self._capacity.least_speech_s(1.0, plan.only_voice)
        return KnownText(
            symbol_s * (symbols - missing),
            symbol_s * symbols / max(1, len(plan.job.text)),
            whole=not plan.job.part.is_open,
        )

    def _check_rows(self, plan: Plan) -> None:
        """Do nothing if a plan takes no more rows than one client's share."""
        if plan.rows > self._share:
            raise InvalidRequest(
                f"that takes {plan.rows} rows of the batch, and one may have {self._share} of"
                f" {self._slots}",
                param=knob_at_fault(plan.params),
            )


def _is_more(job: SpeechJob, before: Plan) -> bool:
    """Return whether there is more of the text in a job than in a plan."""
    known = before.job
    longer = not job.part.is_open or len(job.text) > len(known.text)
    return known.part.is_open and longer
