"""One utterance that is to be decoded: what it says, who says it, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from app.engine.job import Backtrack, FinishReason, RankedTake, TraceColumns
from app.engine.level_0.backtracking import Backtracker
from models.config import BOS_ID, EOS_ID
from models.prefix import Prefix
from models.prefix_cache import NullKey, VoiceKey
from models.valle import Valle
from samplers.knobs.params import SamplingParams


@dataclass(frozen=True, slots=True)
class ContextUtterance:
    """An utterance that was spoken before.

    Attributes:
        phoneme_ids: With the begin and end marks.
        codes: ``[T]`` int64 of level 0.
    """

    phoneme_ids: Sequence[int]
    codes: Tensor


@dataclass(frozen=True, slots=True)
class UtteranceInput:
    """One utterance that is to be decoded.

    Args:
        phoneme_ids: With the begin and end marks.
        params: Resolved: every knob has its value.
        seed: Of every draw.
        utterance: Its number within the job; the noise depends on it.
        max_frames: Where the AR is stopped if it does not stop by itself.
        prompt: ``[Tp, K]`` codes of the voice, or None.
        language: Its index in the model's languages.
        trace: Whether to record what is seen and done at every token of the AR.
        silent: ``(V,)`` bool, the codes of silence; None if none are known.
        before: Utterances that the AR reads again, to go on from them.
        voice: Whose prompt it is, so that what it leads to may be kept; None: it is not.
    """

    phoneme_ids: Sequence[int]
    params: SamplingParams
    seed: int
    utterance: int
    max_frames: int
    prompt: Tensor | None = None
    language: int = 0
    trace: bool = False
    silent: Tensor | None = None
    before: Sequence[ContextUtterance] = ()
    voice: VoiceKey | None = None

    @property
    def silent_codes(self) -> Sequence[int]:
        """The codes of silence, if any are known."""
        return [] if self.silent is None else torch.nonzero(self.silent)[:, 0].tolist()

    def prefix(self, model: Valle, level: int) -> Prefix:
        """Assemble what stands before the response."""
        return model.prefix(self.phoneme_ids, level, language=self.language, prompt=self.prompt)

    def null_prefix(self, model: Valle, level: int) -> Prefix:
        """Assemble what stands there in the condition that says nothing."""
        return model.null_prefix(level, language=self.language)

    @property
    def null(self) -> NullKey:
        """What the shared part of that condition's prefix is kept under."""
        return NullKey(self.language)

    def ar_prefixes(self, model: Valle) -> list[Prefix]:
        """Assemble what stands before the first frame that the AR draws; twice if guided.

        What was said before reads as one utterance with this one: the marks between them are left
        out. A prompt that begins the response is no segment of its own (e-c-k-e-r/vall-e).
        """
        begun = [said.codes for said in self.before]
        prompt = self.prompt
        if self.params.prompt_as_prefix and prompt is not None:
            begun, prompt = [prompt[:, 0], *begun], None
        ids = [BOS_ID]
        for part in (*(said.phoneme_ids for said in self.before), self.phoneme_ids):
            ids += part[1:-1]
        prefixes = [model.prefix([*ids, EOS_ID], 0, language=self.language, prompt=prompt)]
        if self.params.cfg_strength > 1:
            prefixes.append(self.null_prefix(model, 0))
        if not begun:
            return prefixes
        return [model.begin(prefix, torch.cat(begun)) for prefix in prefixes]

    def backtracker(self, model: Valle) -> Backtracker:
        """Make what notices that this utterance is stuck."""
        config, device = model.config, model.separator.device
        silent = self.silent
        if silent is None:
            silent = torch.zeros(config.codes, dtype=torch.bool, device=device)
        return Backtracker(self.params, silent, first_block=config.block_frames)


@dataclass(frozen=True, slots=True)
class UtteranceEnd:
    """How level 0 of an utterance ended.

    Args:
        finish_reason: Why.
        last: Nothing of the job follows.
        cut: Something would, had the job's limit left room for it.
        backtracks: Every time that the utterance was taken back.
        trace: What was seen and done at every token, if the job asks for it.
        takes: All ways that it was drawn in, if there were several.
        ar_s: Seconds of the steps that the utterance took part in.
    """

    finish_reason: FinishReason
    last: bool
    cut: bool = False
    backtracks: tuple[Backtrack, ...] = ()
    trace: TraceColumns | None = None
    takes: tuple[RankedTake, ...] = ()
    ar_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Level0Chunk:
    """Level 0 of an utterance, as far as it became final since the last time.

    Args:
        utterance: Its place in the plan; None: the job's limit left room for none.
        inputs: What is spoken; None: a mere pause.
        codes: ``[n]`` int64, on the host; none where the utterance just begins.
        ending: There, if nothing of the utterance follows.
    """

    utterance: int | None
    inputs: UtteranceInput | None
    codes: Tensor
    ending: UtteranceEnd | None = None
