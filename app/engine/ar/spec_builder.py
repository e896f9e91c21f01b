"""What each utterance of a job is sampled from, with the context of those before."""

import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from app.engine.core import Plan, SpeechResult
from app.engine.results import UtteranceResult
from app.engine.utterance import ContextUtterance, TextPlaces, UtteranceSpec, ar_codes_of
from models.checkpoints.sources import SpeechModel
from models.prefix_cache import VoiceKey
from models.stack.transformer import MAX_POSITIONS
from models.text import FrontEnd
from models.text.tokenizer import joined

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0


class SpecBuilder:
    """Builds the inputs of a job's utterances, one after the other.

    Attributes:
        voice: The prefix cache's key of the job's voice.
    """

    def __init__(
        self, speech: SpeechModel, front_end: FrontEnd, silent: Sequence[int], plan: Plan
    ) -> None:
        self._model = speech.model
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        self._front_end = front_end
        self._silent = silent
        self._plan = plan
        language = speech.model.config.languages.index(plan.language)
        self.voice = VoiceKey(plan.voice.owner, plan.voice.key, language)
        before = plan.job.part.before
        self._first = len(before.utterances) if before else 0
        self._speaker = before.utterances[-1].voice if before and before.utterances else None
        self._begun: UtteranceSpec  # of the utterance that was built last, with its first words
        self._frames_left = 0.0  # when it was
        self._context: deque[ContextUtterance] = deque(maxlen=plan.params.context_utterances)
        self._context.extend(self._earlier(before))

    def extend(self, plan: Plan) -> None:
        """Go on with a plan of more of the text."""
        self._plan = plan

    def build(self, number: int, frames_left: float) -> list[UtteranceSpec]:
        """Return the inputs of an utterance of the plan, for a sound of at most so many frames.

        With a look-ahead those with more and more words of it, at last with all.
        """
        plan = self._plan
        utterance = plan.utterances[number]
        texts = [one.phonemes for one in utterance.versions] or [utterance.phonemes]
        ids = self._front_end.encode(texts[0], plan.language)
        voice, prompt, said = plan.speakers[number]
        if utterance.voice != self._speaker:
            self._context.clear()  # of another speaker
            self._speaker = utterance.voice
        inputs = UtteranceSpec(
            ids,
            plan.params,
            plan.seed,
            self._first + number,
            max_frames=self._most_frames(number, len(ids), frames_left),
            prompt=prompt,
            said=said,
            language=self.voice.language,
            trace=plan.job.report.trace,
            top_logprobs=plan.job.report.top_logprobs,
            silent=self._silent,
            context=tuple(self._context),
            voice=VoiceKey(voice.owner, voice.key, self.voice.language),
            aligned=plan.job.report.timestamps != "none",
            kept=self._kept(self._first + number),
        )
        while inputs.context and inputs.ar_positions(self._model) > MAX_POSITIONS:
            inputs = replace(inputs, context=inputs.context[1:])
        self._begun = inputs
        self._frames_left = frames_left
        return self.later(number, 0) or [inputs]

    def later(self, number: int, versions: int) -> list[UtteranceSpec]:
        """Return the inputs of the utterance that was built last, behind some that are known."""
        return [
            self._with_text(self._begun, number, version, self._frames_left)
            for version in range(versions, len(self._plan.utterances[number].versions))
        ]

    def _with_text(
        self, inputs: UtteranceSpec, number: int, version: int, frames_left: float
    ) -> UtteranceSpec:
        """Return the inputs of a growing utterance with one of its versions."""
        utterance = self._plan.utterances[number]
        text = utterance.versions[version]
        ids = self._front_end.encode(text.phonemes, self._plan.language)
        places = TextPlaces.of(text.begins, self._front_end.lengths(text.phonemes))
        frames = self._most_frames(number, len(ids), frames_left)
        most = self._model.config.max_phonemes + 2
        spare = most - len(ids) + self._most_frames(number, most, frames_left) - frames
        return replace(
            inputs, phoneme_ids=ids, begins=places.begins, max_frames=frames, spare=max(0, spare),
            whole=utterance.whole and version + 1 == len(utterance.versions),
        )  # fmt: skip

    def _most_frames(self, number: int, symbols: int, frames_left: float) -> int:
        """Return the most frames of an utterance whose text has so many symbols."""
        config = self._model.config
        said = self._plan.speakers[number].said
        return min(
            math.ceil(frames_left * self._plan.utterances[number].rate),
            longest(symbols, self._frame_rate_hz),
            (config.frames_a_symbol or sys.maxsize) * len(joined([said, [0] * symbols])),
        )

    def end(self, inputs: UtteranceSpec, codes: Tensor) -> None:
        """Note the codes ``[T]`` of an utterance: those after it continue from them."""
        self._context.append(ContextUtterance(inputs.phoneme_ids, codes))

    def _kept(self, number: int) -> UtteranceResult | None:
        """Return what an earlier take has sampled of an utterance of the speech."""
        kept = self._plan.job.part.kept
        if kept is None or number >= len(kept.utterances):
            return None
        spoken = kept.utterances[number]
        return spoken if len(spoken.codes) or number < kept.whole else None

    def _earlier(self, before: SpeechResult | None) -> Iterator[ContextUtterance]:
        """Yield the last utterances of earlier jobs of the same speech, as context."""
        if before is None or not (wanted := self._plan.params.context_utterances):
            return
        for spoken in [one for one in before.utterances if one.phonemes][-wanted:]:
            ids = self._front_end.encode(spoken.phonemes, self._plan.language)
            yield ContextUtterance(ids, ar_codes_of(spoken))


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return the most frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)
