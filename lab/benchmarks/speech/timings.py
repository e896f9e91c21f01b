"""Word times against Whisper's, and words that the sound lacks.

    python -m lab.benchmarks.speech.timings ../shared/data/harvard_dev.txt --count 60

Each sentence is spoken with `timestamps`, once whole and once streamed. Word starts are compared
with Whisper's where it heard the words that were to be said. Then one word of each sentence is cut
out of its codes, and the rest is aligned with the whole sentence.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.engine.ar.job import ArJob
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import Plan, ReportOptions, SpeechJob
from app.engine.join.word_clock import WordClock
from app.engine.nar.alignment import UtteranceAlignment
from app.engine.nar.chunks import chunks_of
from app.engine.results import Alignment, WordTimes
from app.settings import BUILTIN_MODEL, Settings
from lab.training.judging.judges import HEARING_RATE_HZ, resample, whisper_folder
from models.prefix_cache import PrefixCache
from samplers.knobs.params import SamplingParams


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--whisper", default="base")
    parser.add_argument("--temperature", type=float)
    chosen = parser.parse_args()
    lines = chosen.sentences.read_text("utf-8").split("\n")[: chosen.count]
    synthesizer = Synthesizer.load(
        Settings(model=str(BUILTIN_MODEL), device="cpu", weights="int8", max_text_chars=500)
    )
    ears = Ears(chosen.whisper)
    knobs = {} if chosen.temperature is None else {"temperature": chosen.temperature}
    errors_s: list[float] = []
    compared = flagged = words_said = dropped = found = wrong = unequal = 0
    costs: list[float] = []
    for number, line in enumerate(lines):
        plan = planned(synthesizer, line, knobs)
        words, streamed, samples, codes, cost = spoken(synthesizer, plan, line, knobs)
        costs.append(cost)
        unequal += words != streamed
        words_said += len(words)
        flagged += sum(word.missing for word in words)
        heard = ears.words(samples, synthesizer.info.sample_rate_hz)
        if [plain(word.word) for word in words] == [plain(word) for word, _ in heard]:
            compared += 1
            pairs = zip(words, heard, strict=True)
            errors_s += [abs(word.start_s - at_s) for word, (_, at_s) in pairs]
        missing = without_a_word(synthesizer, plan, codes, words, number)
        if missing is not None:
            cut, others = missing
            dropped, found, wrong = dropped + 1, found + cut, wrong + others
    median_s, worst_s = np.percentile(errors_s, [50, 95])
    print(f"{compared} of {len(lines)} sentences heard as written, {len(errors_s)} words")
    print(f"word starts: median error {1000 * median_s:.0f} ms, P95 {1000 * worst_s:.0f} ms")
    print(f"streamed unlike whole: {unequal}; flagged of {words_said} words said: {flagged}")
    print(f"words cut out: {dropped}, flagged {found}; other words flagged then: {wrong}")
    print(f"added time of a sentence: median {1000 * float(np.median(costs)):.0f} ms")


class Ears:
    """Whisper, with the times of words."""

    def __init__(self, name: str) -> None:
        from faster_whisper import WhisperModel

        self._model = WhisperModel(
            str(whisper_folder(name)), device="cpu", compute_type="int8", cpu_threads=1
        )

    def words(self, samples: NDArray[np.float32], rate_hz: int) -> list[tuple[str, float]]:
        """Return the words that are heard, and when each begins."""
        segments, _ = self._model.transcribe(
            resample(samples, rate_hz, HEARING_RATE_HZ),
            language="en",
            temperature=0.0,
            word_timestamps=True,
            condition_on_previous_text=False,
        )
        return [(word.word, float(word.start)) for one in segments for word in one.words or ()]


def plain(word: str) -> str:
    """Return a word without case and marks."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def planned(synthesizer: Synthesizer, line: str, knobs: dict[str, Any]) -> Plan:
    """Return the plan of a sentence with timestamps."""
    params = SamplingParams(seed=1, **knobs)
    job = SpeechJob("timed", line, params, report=ReportOptions(timestamps="word"))
    return synthesizer.planner.plan(job)


def spoken(
    synthesizer: Synthesizer, plan: Plan, line: str, knobs: dict[str, Any]
) -> tuple[Sequence[WordTimes], Sequence[WordTimes], NDArray[np.float32], torch.Tensor, float]:
    """Speak a sentence.

    Returns its words as the result has them, as the chunks told them, its samples ``[N]``, its
    codes ``[T, K]``, and the seconds that timestamps added.
    """
    told: dict[int, WordTimes] = {}
    samples = []
    started_s = perf_counter()
    for chunk in synthesizer.speak(plan):
        told |= {word.index: word for word in chunk.words}
        samples.append(chunk.samples)
    with_s = perf_counter() - started_s
    assert chunk.result is not None
    plain_plan = synthesizer.planner.plan(SpeechJob("plain", line, SamplingParams(seed=1, **knobs)))
    started_s = perf_counter()
    list(synthesizer.speak(plain_plan))
    cost_s = with_s - (perf_counter() - started_s)
    utterance = chunk.result.utterances[0]
    codes = torch.from_numpy(utterance.codes.astype(np.int64))
    words = utterance.words or ()
    return words, tuple(told[n] for n in sorted(told)), np.concatenate(samples), codes, cost_s


def without_a_word(
    synthesizer: Synthesizer,
    plan: Plan,
    codes: torch.Tensor,
    words: Sequence[WordTimes],
    number: int,
) -> tuple[bool, int] | None:
    """Cut one word out of the codes of a sentence and align the rest.

    Returns whether that word is flagged as missing, and how many others but its neighbours are;
    None if no word can be cut.
    """
    inner = [word for word in words[1:-1] if word.end_s and word.end_s - word.start_s > 0.1]
    if not inner:
        return None
    word = inner[number % len(inner)]
    speech = synthesizer.speech
    rate_hz = speech.codec.config.frame_rate_hz
    trimmed_s = 0.0
    for chunk in synthesizer.speak(plan):
        if chunk.result is not None:
            trimmed_s = chunk.result.utterances[0].trimmed_s
    assert word.end_s is not None
    first, end = (round((at_s + trimmed_s) * rate_hz) for at_s in (word.start_s, word.end_s))
    rest = torch.cat([codes[:first, 0], codes[end:, 0]])
    job = ArJob(
        speech,
        synthesizer.planner.front_end,
        (),
        plan,
        lambda _: None,
    )
    inputs = job.next_inputs()
    assert inputs is not None
    alignment = UtteranceAlignment(speech.model, inputs, PrefixCache(speech.model))
    chunks = chunks_of(speech.model.config.block_frames).up_to(len(rest), ended=True)
    parts = [alignment.push(rest[one.start : one.end]) for one in chunks]
    clock = WordClock(
        plan.words[0],
        plan.utterances[0].phonemes,
        plan.lengths[0],
        lead_frames=0,
        with_phonemes=False,
    )
    clock.push(Alignment(*(np.concatenate(one) for one in zip(*parts, strict=True))))
    timings = clock.words(0, 0.0, 0.0, 1 / rate_hz, len(rest) / rate_hz)
    missing = {one.index for one in timings if one.missing}
    near = {word.index - 1, word.index, word.index + 1}
    return word.index in missing, len(missing - near)


if __name__ == "__main__":
    main()
