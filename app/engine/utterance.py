"""What an utterance is sampled from: its inputs, of which every stage makes its prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.results import UtteranceResult
from models.config import BOS_ID, EOS_ID
from models.prefix import MARKS, Prefix
from models.prefix_cache import NullKey, VoiceKey
from models.text.tokenizer import joined
from models.valle import Valle
from samplers.knobs.features import has_null_row
from samplers.knobs.params import SamplingParams

_NEVER: Final = 2**31  # more frames than there are


@dataclass(frozen=True, slots=True)
class ContextUtterance:
    """An earlier utterance that the AR continues from; see the knob `context_utterances`."""

    phoneme_ids: Sequence[int]  # with the begin and end marks
    codes: Tensor  # ``[T]`` int64 of level 0, on the host


def ar_codes_of(spoken: UtteranceResult) -> Tensor:
    """Return the codes of level 0 of a result, ``[T]`` int64."""
    return torch.from_numpy(spoken.codes[:, 0].astype(np.int64))


class TextPlaces(NamedTuple):
    """Where the words of a text are among its symbols."""

    symbols: int  # with the begin and end marks
    begins: Sequence[int]  # index of the first symbol of each word

    @classmethod
    def of(cls, begins: Sequence[int], lengths: Sequence[int]) -> Self:
        """Return those of a text whose words begin at some of its code points.

        ``lengths`` says how many of these each symbol stands for.
        """
        ends = np.cumsum(lengths)
        first = int(lengths[0] == 0)  # behind the mark of the begin
        found = np.maximum(np.searchsorted(ends - lengths, begins), first)
        return cls(len(lengths), np.minimum(found, len(lengths) - 1).tolist())

    def indices_in(self, later: "TextPlaces") -> NDArray[np.int64]:
        """Return ``[S]``, ascending: where each symbol is in a text of more words.

        Symbols that a word has more of here, and what is behind the last word, are at the end of
        their word there.
        """
        edges = [0, *self.begins, self.symbols]
        known = [0, *later.begins, later.symbols - 1]
        targets = np.zeros(self.symbols, np.int64)
        for word, (begin, end) in enumerate(pairwise(edges)):
            first = known[word]
            last = max(first, known[word + 1] - 1)
            targets[begin:end] = np.minimum(first + np.arange(end - begin), last)
        return np.maximum.accumulate(targets)


@dataclass(frozen=True, slots=True)
class TextGrowth:
    """More of an utterance's text, from a frame on."""

    frame: int  # the first that was drawn with it
    phoneme_ids: Sequence[int]  # with the begin and end marks
    begins: Sequence[int]  # as in `UtteranceSpec`


@dataclass(frozen=True, slots=True)
class UtteranceSpec:
    """An utterance to decode."""

    phoneme_ids: Sequence[int]  # with the begin and end marks
    params: SamplingParams
    seed: int
    utterance: int  # its number within the speech; the noise depends on it
    max_frames: int  # where the AR is stopped, if it does not sample the stop
    prompt: Tensor | None = None  # ``[Tp, K]`` codes of the voice, or None
    # ids of what the prompt says, where it begins the response
    said: Sequence[int] = ()
    language: int = 0  # its index in the model's languages
    trace: bool = False
    top_logprobs: int = 0  # how many of the likeliest codes it tells for each
    silent: Sequence[int] = ()  # the codes of silence
    context: Sequence[ContextUtterance] = ()
    # Key of the prefixes' shared part in the prefix cache; None: it is not cached.
    voice: VoiceKey | None = None
    aligned: bool = False
    # Its first frames, of an earlier take, with the backtracks and the memory of the sampler before
    # the last of them was sampled. None: all are sampled
    kept: UtteranceResult | None = None
    # With a look-ahead, what is known of the text so far: the index in `phoneme_ids` of the first
    # symbol of each word. Empty: the text is known from the beginning.
    begins: Sequence[int] = ()
    whole: bool = True  # whether no more words follow
    spare: int = 0  # positions that its text, and the frames for that, may yet grow by

    @classmethod
    def known(cls, spoken: UtteranceResult) -> Self:
        """Return an utterance of which all codes are known, and no text."""
        params = SamplingParams(nar_levels=0)
        frames = len(spoken.codes)
        return cls([BOS_ID, EOS_ID], params, 0, 0, frames, kept=spoken.kept(frames))

    @property
    def positions(self) -> int:
        """The most positions that one of its sequences may take."""
        prompt = len(self.said) + (0 if self.prompt is None else len(self.prompt))
        return len(self.phoneme_ids) + prompt + MARKS + self.max_frames + self.spare

    @property
    def due(self) -> int | None:
        """Symbol at which more words must be known before the next frame; None if none follow."""
        if self.whole:
            return None
        return self.begins[max(0, len(self.begins) - self.params.text_lookahead_words)]

    @property
    def row_params(self) -> SamplingParams:
        """The knobs that level 0 is sampled with: it cannot end before its text is whole."""
        if self.whole:
            return self.params
        return self.params.model_copy(update={"min_frames": _NEVER})

    @property
    def places(self) -> "TextPlaces":
        """Where its words are among its symbols."""
        return TextPlaces(len(self.phoneme_ids), self.begins)

    def grown(self, growth: "TextGrowth") -> Self:
        """Return what it is from a growth on, for its sound."""
        return replace(self, phoneme_ids=growth.phoneme_ids, begins=growth.begins)

    def prefix(self, model: Valle, level: int) -> Prefix:
        """Return the prefix of a level: language, phonemes and prompt."""
        said = [self.said] if self.said and (level == 0 or model.config.nar_prompt_text) else []
        ids = joined([*said, self.phoneme_ids])
        return model.prefix(ids, level, language=self.language, prompt=self.prompt)

    def null_prefix(self, model: Valle, level: int) -> Prefix:
        """Return the unconditional prefix of a level, for guidance."""
        return model.null_prefix(level, language=self.language)

    @property
    def null(self) -> NullKey:
        """Key of the unconditional prefixes' shared part in the prefix cache."""
        return NullKey(self.language)

    def ar_prefixes(self, model: Valle) -> list[Prefix]:
        """Return the prefix of the AR and, if guidance takes another row, the unconditional one.

        Context and utterance form one utterance, without the marks between them. With
        `prompt_as_prefix` the prompt's level 0 begins the response (e-c-k-e-r/vall-e).
        """
        prefixes = [self.ar_prefix(model)]
        if has_null_row(self.params, model.config.one_row_strength):
            prefixes.append(self._begun(model, self.null_prefix(model, 0)))
        return prefixes

    def ar_positions(self, model: Valle) -> int:
        """Return the most positions that level 0 of it takes in one sequence."""
        return max(map(len, self.ar_prefixes(model))) + self.max_frames + self.spare

    def ar_prefix(self, model: Valle) -> Prefix:
        """Return the first of `ar_prefixes`."""
        prompt = None if self.params.prompt_as_prefix else self.prompt
        prefix = model.prefix(self._text_ids, 0, language=self.language, prompt=prompt)
        return self._begun(model, prefix)

    def own_text(self, prefix: Prefix) -> slice:
        """Return the positions of its own symbols in its prefix of the AR, marks included."""
        end = prefix.text_start + len(self._text_ids)
        return slice(end - len(self.phoneme_ids), end)

    @property
    def _text_ids(self) -> list[int]:
        """The phoneme ids of prompt, context and utterance as one utterance."""
        said = [self.said] if self.said else []
        earlier = [one.phoneme_ids for one in self.context]
        return joined([*said, *earlier, self.phoneme_ids])

    def _begun(self, model: Valle, prefix: Prefix) -> Prefix:
        """Return a prefix with the frames that the response continues."""
        begun = [earlier.codes for earlier in self.context]
        if self.params.prompt_as_prefix and self.prompt is not None:
            begun.insert(0, self.prompt[:, 0].cpu())
        return model.begin(prefix, torch.cat(begun)) if begun else prefix
