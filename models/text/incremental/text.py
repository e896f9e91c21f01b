"""Text that arrives in packets, as a person types it or a language model writes it.

A piece is cut off as soon as its end is certain: after a sentence, a paragraph or a pause, once no
further text can change that. The pieces therefore depend on the text and on flushes, not on
packets. Where "St." may be a saint or the end of a sentence, more text is awaited. A complete text
is cut in the same way (`pieces`); `split` finds further boundaries within a piece. Who speaks and
how fast holds until the text says otherwise, so a piece begins with that of the pieces before.

The cost is linear in the length of the text: each packet resumes where the previous one stopped,
and text is searched again only if it is at most `_NEAR_CHARS` long or has grown by a quarter.
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Final

from models.text.incremental.borders import (
    BORDER,
    LONGEST_DIRECTION,
    LONGEST_PAUSE,
    PAUSE,
    RATE,
    VOICE,
    continues,
    is_list_number,
    piece_end,
    resume_at,
)
from models.text.incremental.certain import certain_end
from models.text.incremental.enclosure import PARAGRAPH, Enclosure, Undecided
from models.text.incremental.speakable import Speakable
from models.text.layout.blocks import BlockRewriter
from models.text.layout.tags import TagRewriter, code_end
from models.text.ssml import SsmlRewriter

_PAUSE: Final = re.compile(rf"{PAUSE}\s*+", re.IGNORECASE)
_ENDS_IN_PAUSE: Final = re.compile(rf"{PAUSE}$", re.IGNORECASE)
_LASTING: Final = {kind: re.compile(kind, re.IGNORECASE) for kind in (VOICE, RATE)}
# What may be between a piece and a pause of its own: marks without a word, tags, directions.
_SILENT: Final = re.compile(
    rf"(?:[^\w\[<]++|<(?!/?(?:[A-Za-z]|\Z))|</?[A-Za-z][^<>@]*+>|{VOICE}|{RATE})*+", re.IGNORECASE
)
_OPEN_TAG: Final = re.compile(r"<(?:/?(?:[A-Za-z][^<>@]*+)?)?\Z")

_TICKS: Final = re.compile("`+")

_NEAR_CHARS: Final = 400
_PACKET_CHARS: Final = 4096  # the remaining text is copied at every boundary


class GrowingText:
    """Cuts a text that arrives in packets into pieces."""

    _text: str
    _searched: int
    _look_again: int

    def __init__(self, *, layout: bool = True, thoughts: bool = False) -> None:
        self._pieces_returned = 0
        # What rewrites the text before it is cut, each what the one before it returns.
        self._rewriters: Sequence[SsmlRewriter | TagRewriter | BlockRewriter] = (
            (SsmlRewriter(), TagRewriter(thoughts=thoughts), BlockRewriter()) if layout else ()
        )
        self._complete = False
        self._directions = dict.fromkeys(_LASTING, "")
        self._hold("", at_line_start=True)

    def append(self, text: str) -> list[str]:
        """Append a packet; return the pieces that are now certain."""
        for rewriter in self._rewriters:
            text = rewriter.push(text)
        return self._append(text)

    def _append(self, text: str) -> list[str]:
        """Append rewritten text; return the pieces that are now certain."""
        self._text = (self._text + text).lstrip()
        pieces: list[str] = []
        if len(self._text) < self._look_again:
            return pieces
        while cut := self._cut():
            end, start = cut
            # Space may stand before a paragraph's end.
            pieces.append(self._directed(self._text[:end].rstrip()))
            starts_line = _starts_line(self._text, end, start)
            self._hold(self._text[start:].lstrip(), at_line_start=starts_line)
        undecided = len(self._text) - self._searched
        self._look_again = len(self._text) + undecided // 4 if undecided > _NEAR_CHARS else 0
        self._pieces_returned += len(pieces)
        return pieces

    @property
    def open_part(self) -> str:
        """The beginning of the next piece, as far as no further text has it read otherwise."""
        begin = self._text[: certain_end(self._text)]
        directions = "".join(self._directions.values())
        return f"{directions}\n\n{begin}" if directions and begin else begin

    def flush(self) -> list[str]:
        """Return the rest as a piece, complete sentence or not.

        A rest without a word is kept for the following text.
        """
        text = ""
        for rewriter in self._rewriters:
            text = rewriter.push(text) + rewriter.end()
        pieces = self._append(text)
        if not self._speakable.within(self._text, len(self._text)):
            return pieces
        piece = self._directed(self._text.rstrip())
        self._hold("", at_line_start=True)
        self._pieces_returned += 1
        return [*pieces, piece]

    def end(self) -> list[str]:
        """Return the rest and end the text.

        If the whole text has nothing to speak it is returned as it is, so that it can be refused.
        """
        self._complete = True
        self._look_again = 0
        pieces = self.flush()
        if not self._pieces_returned and self._text:
            pieces = [self._text]
            self._text = ""
        return pieces

    def _directed(self, piece: str) -> str:
        """Return a piece after the directions that hold at its beginning."""
        begin = "".join(self._directions.values())
        for kind, pattern in _LASTING.items():
            for found in pattern.finditer(piece):
                self._directions[kind] = found[0]
        return f"{begin}\n\n{piece}" if begin else piece  # it may begin with an item

    def _hold(self, text: str, *, at_line_start: bool) -> None:
        """Replace the text by its rest and restart the search."""
        self._text = text
        self._at_line_start = at_line_start
        self._speakable = Speakable()
        self._enclosure = Enclosure()
        self._code_to = 0  # where code in a line ends, or is searched from
        self._phonemes_to = 0  # where inline phonemes end, or are searched from
        self._searched = 0  # no boundary before this index
        self._since = 0  # end of the last candidate
        self._look_again = 0  # length of the text at which to search again

    def _cut(self) -> tuple[int, int] | None:
        """Return the end of the first piece and the start of the rest, or None if undecided."""
        text = self._text
        # Of white space at the end only the first character matters: it completes a word.
        searched_to = len(text.rstrip()) + 1
        for match in BORDER.finditer(text, self._searched, searched_to):
            self._searched = match.start()
            end = piece_end(match)
            try:
                if self._is_border(match, end):
                    return _with_pauses(text, end, match.end())
            except Undecided:
                return None
            self._searched = match.end()
            self._since = match.start() if match["pause"] or match["paragraph"] else end
        self._searched = resume_at(text, self._searched)
        return None

    def _is_border(self, match: re.Match[str], end: int) -> bool:
        """Return whether a piece ends at a candidate."""
        if not self._speakable.within(self._text, end) or self._in_phonemes(end):
            return False
        if self._in_code(end):
            return False
        if match["pause"]:
            return True
        if match["mark"] and not match["after"] and not match["next"]:
            raise Undecided  # only space or opening marks so far
        if is_list_number(match, self._since, at_line_start=self._at_line_start):
            return False
        if match["paragraph"]:
            return True
        if match["mark"]:
            if PARAGRAPH.search(match["space"]):
                return True
            if match["opening"] != "[" and continues(match, complete=self._complete):
                return False
        return not self._enclosure.around(self._text, end, complete=self._complete)

    def _in_code(self, place: int) -> bool:
        """Return whether an index, which grows between calls, is inside code in a line."""
        while opens := _TICKS.search(self._text, self._code_to, place):
            ends = code_end(self._text, opens.start(), opens[0])
            self._code_to = ends if ends is not None else opens.end()
        inside = self._code_to > place
        self._code_to = max(self._code_to, place)  # what was searched is not searched again
        return inside

    def _in_phonemes(self, place: int) -> bool:
        """Return whether an index, which grows between calls, is inside inline phonemes."""
        while (opens := self._text.find("[[", self._phonemes_to, place)) >= 0:
            closes = self._text.find("]]", opens)
            if closes < 0:
                raise Undecided
            self._phonemes_to = closes
        inside = self._phonemes_to >= place
        self._phonemes_to = max(self._phonemes_to, place - 1)
        return inside


def pieces(text: str, *, layout: bool = True, thoughts: bool = False) -> list[str]:
    """Return the pieces of a complete text.

    ``layout`` is whether it may have SSML, Markdown and the like; ``thoughts``, whether the parts
    that a model marks as its reasoning are read.
    """
    growing = GrowingText(layout=layout, thoughts=thoughts)
    packets = (text[at : at + _PACKET_CHARS] for at in range(0, len(text), _PACKET_CHARS))
    return [*chain.from_iterable(map(growing.append, packets)), *growing.end()]


def _with_pauses(text: str, end: int, start: int) -> tuple[int, int]:
    """Extend a piece by the pauses that follow it."""
    while match := _PAUSE.match(text, _past_marks(text, start)):
        end = match.start() + len(match[0].rstrip())
        start = match.end()
    place = _past_marks(text, start)
    rest = text[place : place + LONGEST_DIRECTION]
    incomplete = rest[:1] == "[" and not {*rest[1:]} & {*"[]\n"} and len(rest) < LONGEST_DIRECTION
    if not rest or incomplete:
        raise Undecided
    return end, start


def _past_marks(text: str, place: int) -> int:
    """Return the index after marks and tags."""
    marks = _SILENT.match(text, place)
    end = marks.end() if marks else place
    if _OPEN_TAG.match(text, end):
        raise Undecided
    return end


def _starts_line(text: str, end: int, start: int) -> bool:
    """Return whether the text after a piece begins a line when read by itself."""
    return "\n" in text[end:start] or bool(
        _ENDS_IN_PAUSE.search(text, max(0, end - LONGEST_PAUSE), end)
    )
