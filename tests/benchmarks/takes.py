"""Takes made up by hand."""

from typing import Any

from benchmarks.speech.recording import EAR, Take
from training.judging.endings import Ending
from training.judging.judges import Errors
from training.judging.panel import Judgement

MODEL = "0" * 64


def take(
    text: str = "One two.",
    seed: int = 0,
    *,
    setting: str = "off",
    knobs: dict[str, Any] | None = None,
    model: str = MODEL,
    edits: int = 0,
    stuck: bool = False,
    backtracks: tuple[str, ...] = (),
    spoken_s: float = 1.0,
) -> Take:
    """Return a take of two words and ten phonemes."""
    judgement = Judgement(
        text=text,
        seed=seed,
        duration_s=spoken_s,
        spoken_s=spoken_s,
        teacher_spoken_s=1.0,
        wall_s=None,
        received={EAR: "one two"},
        errors={EAR: Errors(words=2, word_edits=edits, letters=7, letter_edits=0)},
        ending=Ending(runaway=False, cut_short=False, silent=False, stuck=stuck),
        dnsmos=None,
        similarity=None,
    )
    return Take(
        setting=setting,
        knobs=knobs or {},
        model=model,
        phonemes=10,
        frames=75,
        looped=stuck,
        finish_reason="stop",
        backtracks=backtracks,
        judgement=judgement,
    )
