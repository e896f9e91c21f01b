"""Splitting of normalised text into utterances, one a sentence.

A sentence ends at a full stop outside quotations and brackets; `normalise` has removed the full
stops of numbers and abbreviations. A sentence with too many phonemes is halved at the strongest
boundary near its middle, recursively until it fits.
"""

# ruff: noqa: RUF001 - dashes of every kind

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from models.text.markup import Inline
from models.text.phonemes import phonemize

_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n\s*")
_SENTENCE_END: Final = re.compile(
    r"(?<![.!?…])(?P<mark>[.!?…]++)(?P<closing>[\"')\]}]*+)\s++"
    r"(?=(?P<opening>[\"'(\[{]*)(?P<next>\S))"
)
_QUOTATIONS: Final = re.compile(
    r'"[^"]*"'
    r"|\((?:[^()]|\([^()]*\))*\)"
    r"|(?<!\w)'(?=\w)(?:[^'\"]|(?<=\w)'(?=\w))*[.,!?]'(?!\w)"
)
# Strongest first: the end of a sentence inside a quotation, clauses, words.
_BORDERS: Final = (
    re.compile(r"(?<=[.!?…])[\"')]*\s+"),
    re.compile(r"(?<=[;:,)])[\"']?\s+|(?<!\s)\s++(?=[(—–])|(?<=[—–])\s*"),
    re.compile(r"\s+"),
)

_NOT_FIRST: Final = " ,;:.!?…—–-"

Speak = Callable[[str], str]


@dataclass(frozen=True)
class Utterance:
    """A part of a text that is synthesised at once.

    Attributes:
        text: Its normalised words; inline phonemes in brackets.
        phonemes: Input of the model; empty only for a pause at the beginning of a text.
        pause_after_s: Silence after it in seconds: that of the markup, 0 where a sentence was cut
            between two words, None for the default pause of the request.
        voice: Who speaks it, as the markup names them; None: the voice of the request.
        rate: Its tempo: 1 is the model's own, 2 is twice as fast.
    """

    text: str
    phonemes: str
    pause_after_s: float | None = None
    voice: str | None = None
    rate: float = 1.0


def split(
    text: str,
    inline: Inline | None = None,
    *,
    speak: Speak = phonemize,
    max_phonemes: int = 250,
) -> list[Utterance]:
    """Split a normalised text into utterances of at most `max_phonemes` symbols.

    Parts without letters are dropped. `speak` converts words to phonemes.

    Raises:
        ValueError: `max_phonemes` is not positive.
    """
    if max_phonemes < 1:
        raise ValueError(f"max_phonemes must be positive, not {max_phonemes}")
    inline = inline or Inline({})
    return [
        replace(utterance, text=inline.write(utterance.text))
        for sentence in _sentences(text)
        for utterance in _fitting(sentence, inline, speak, max_phonemes)
        if any(symbol.isalpha() for symbol in utterance.phonemes)
    ]


def _sentences(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(text):
        line = " ".join(paragraph.split())
        quotations = (match.span() for match in _QUOTATIONS.finditer(line))
        left = right = start = 0
        for match in _SENTENCE_END.finditer(line):
            end = match.end("closing")
            while right < end and (quotation := next(quotations, None)):
                left, right = quotation
            if _continues(match) or left < end - 1 < right - 1:
                continue
            yield line[start:end].lstrip(_NOT_FIRST)
            start = match.end()
        yield line[start:].lstrip(_NOT_FIRST)


def _continues(match: re.Match[str]) -> bool:
    """Return whether the sentence continues after a mark: "Stop!" he said. Well... maybe."""
    may_continue = match["closing"] or match["mark"].endswith(("..", "…"))
    return bool(may_continue) and match["next"].islower() and not match["opening"]


def _fitting(text: str, inline: Inline, speak: Speak, max_phonemes: int) -> Iterator[Utterance]:
    # English has at least one phoneme symbol for two letters, so a text of over twice as many
    # letters is halved without phonemising it.
    if len(text) <= 2 * max_phonemes:
        phonemes = inline.pronounce(speak(text))
        # The name of a single letter may exceed a small limit and cannot be halved.
        if len(phonemes) <= max_phonemes or len(text) == 1:
            yield Utterance(text, phonemes[:max_phonemes])
            return
    end, start, pause_after_s = _halving(text)
    *first, last = _fitting(text[:end].rstrip(), inline, speak, max_phonemes)
    yield from first
    yield replace(last, pause_after_s=pause_after_s)
    yield from _fitting(text[start:].lstrip(), inline, speak, max_phonemes)


def _halving(text: str) -> tuple[int, int, float | None]:
    """Return the end of the first half, the start of the second, and the pause between."""
    middle = len(text) / 2
    for reach in (0.5, 1.0):
        for border in _BORDERS:
            cuts = [
                match.span()
                for match in border.finditer(text)
                if match.start() > 0
                and match.end() < len(text)
                and abs(match.start() - middle) <= reach * middle
            ]
            if cuts:
                start, end = min(cuts, key=lambda cut: abs(cut[0] - middle))
                # Closing quotes stay with what they close.
                start += len(text[start:end].rstrip())
                return start, end, 0.0 if border is _BORDERS[-1] else None
    return len(text) // 2, len(text) // 2, 0.0
