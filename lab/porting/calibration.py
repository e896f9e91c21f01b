"""Measure the entropy of a loaded model's predictions and derive entropix thresholds from it.

Entropix was designed for text models; its thresholds must be measured for every other model. They
are percentiles of the entropy H and varentropy V of level 0, after guidance, bans and penalties,
before temperature and filters, over all tokens of a set of sentences:

    low_entropy = P10(H)    helv_entropy = lehv_entropy = hehv_entropy = P90(H)
    low_varentropy = P10(V)    high_varentropy = P90(V)

The resulting preset also sets `dry_sequence_breakers` to the codec's codes of silence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import ReportOptions, SpeechJob
from app.engine.results import TraceColumns, UtteranceResult
from lab.porting.alignment_heads import HeadScore, rate_heads
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import State

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
LOW, HIGH = 10, 90
_SENTENCES_FOR_HEADS, _HEADS_TOLD = 12, 3

THRESHOLDS: Mapping[str, tuple[str, int]] = {
    "entropix_low_entropy": ("entropy_bits", LOW),
    "entropix_helv_entropy": ("entropy_bits", HIGH),
    "entropix_lehv_entropy": ("entropy_bits", HIGH),
    "entropix_hehv_entropy": ("entropy_bits", HIGH),
    "entropix_low_varentropy": ("varentropy_bits2", LOW),
    "entropix_high_varentropy": ("varentropy_bits2", HIGH),
}
"""Knob -> trace column and percentile that give its value."""

ENTROPIES = ("entropy_bits", "varentropy_bits2")
ATTENTION = (
    "attention_entropy_bits",
    "attention_varentropy_bits2",
    "attention_agreement",
    "attention_strength",
)

Columns: TypeAlias = Mapping[str, NDArray[np.float64]]
"""Name -> ``[N]``, one value per token."""


@dataclass(frozen=True)
class CalibrationTask:
    """Which utterances to speak: all sentences in turn, then again with new seeds."""

    sentences: Sequence[str]
    count: int
    preset: str

    @property
    def base(self) -> SpeechJob:
        """A job with the preset alone."""
        params = SamplingParams(preset=self.preset, seed=0)
        return SpeechJob("calibrate-base", self.sentences[0], params)

    def jobs(self, **knobs: Any) -> Iterator[SpeechJob]:
        """Yield one traced job per utterance; ``knobs`` override those of the preset."""
        for number in range(self.count):
            seed, sentence = divmod(number, len(self.sentences))
            params = SamplingParams(preset=self.preset, seed=seed, nar_levels=0, **knobs)
            yield SpeechJob(
                f"calibrate-{number}",
                self.sentences[sentence],
                params,
                report=ReportOptions(trace=True),
            )


@dataclass(frozen=True)
class Calibration:
    """The measurements and the preset derived from them."""

    columns: Columns  # entropies without entropix; attention statistics with it
    silent: tuple[int, ...]  # the codes of level 0 that are silence
    knobs: Mapping[str, Any]
    states: Mapping[str, float]  # share of the tokens in each entropix state with those knobs
    model: tuple[str, str]  # name and SHA-256
    heads: Sequence[HeadScore] = ()  # the surest first

    @classmethod
    def measure(
        cls,
        synthesizer: Synthesizer,
        task: CalibrationTask,
        on_utterance: Callable[[], object],
    ) -> Self:
        """Speak all sentences without entropix, then with the thresholds derived from that."""
        silent = synthesizer.ar.silent
        plain = _observe(synthesizer, task.jobs(entropix=False), ENTROPIES, on_utterance)
        base = synthesizer.planner.plan(task.base)
        thresholds = {
            knob: round(float(np.percentile(plain[column], percentile)), 4)
            for knob, (column, percentile) in THRESHOLDS.items()
        }
        fitted = {"entropix": True, **thresholds}
        chosen = base.params.model_dump(mode="json", exclude_defaults=True)
        knobs = {name: chosen[name] for name in chosen if name not in {"preset", "seed"}}
        knobs |= {**fitted, "dry_sequence_breakers": list(silent)}
        seen = _observe(
            synthesizer, task.jobs(**fitted), (*ATTENTION, "entropix_state"), on_utterance
        )
        states = {
            state.name: float((seen["entropix_state"] == state).mean())
            for state in State
            if state >= 0
        }
        attention = {name: seen[name] for name in ATTENTION}
        heads = _heads(synthesizer, task)
        info = synthesizer.info
        return cls({**plain, **attention}, silent, knobs, states, (info.name, info.sha256), heads)

    def table(self) -> str:
        """Return the percentiles, the codes of silence and the shares of the states as text."""
        width = max(map(len, self.columns))
        lines = [" " * width + "".join(f"{f'P{percentile}':>9}" for percentile in PERCENTILES)]
        for name, values in self.columns.items():
            cells = "".join(f"{value:9.3f}" for value in np.percentile(values, PERCENTILES))
            lines.append(f"{name:<{width}}{cells}")
        tokens = len(next(iter(self.columns.values())))
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.states.items())
        return "\n".join([
            *lines,
            f"{tokens} tokens. States with the thresholds of the preset: {shares}.",
            f"{len(self.silent)} codes are silence: {', '.join(map(str, self.silent))}.",
            *(
                f"TTS_ALIGNMENT={head}: sure to {head.sureness:.0%} that it follows the text"
                for head in self.heads
            ),
        ])

    def preset_file(self, name: str, task: CalibrationTask) -> dict[str, Any]:
        """Return the content of a file of the preset, with its provenance in ``about``."""
        percentiles = {
            column: {
                f"P{percentile}": round(float(value), 4)
                for percentile, value in zip(
                    PERCENTILES, np.percentile(values, PERCENTILES), strict=True
                )
            }
            for column, values in self.columns.items()
        }
        about = {
            "made_by": "valle-serve tools calibrate",
            "date": datetime.now(UTC).date().isoformat(),
            "model": self.model[0],
            "model_sha256": self.model[1],
            "utterances": task.count,
            "over_preset": task.preset,
            "percentiles": percentiles,
            "states": {state: round(share, 4) for state, share in self.states.items()},
        }
        return {"about": about, "presets": {name: dict(self.knobs)}}


def _heads(synthesizer: Synthesizer, task: CalibrationTask) -> list[HeadScore]:
    """Return the heads that follow the text best, on a few of the sentences."""
    spoken: list[UtteranceResult] = []
    for _, job in zip(range(_SENTENCES_FOR_HEADS), task.jobs(entropix=False), strict=False):
        spoken += [one for one in synthesizer.spoken(job).utterances if len(one.codes) > 1]
    plan = synthesizer.planner.plan(task.base)
    return rate_heads(synthesizer.speech, plan.speakers[0][1], spoken)[:_HEADS_TOLD]


def _observe(
    synthesizer: Synthesizer,
    jobs: Iterator[SpeechJob],
    names: Sequence[str],
    on_utterance: Callable[[], object],
) -> Columns:
    """Speak jobs and return columns of their traces, concatenated."""
    traces: list[TraceColumns] = []
    for job in jobs:
        traces += [one.trace for one in synthesizer.spoken(job).utterances if one.trace]
        on_utterance()
    return {name: np.concatenate([trace[name] for trace in traces]) for name in names}
