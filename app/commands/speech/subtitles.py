"""Subtitles of a speech from the times of its words: SubRip (.srt) or WebVTT (.vtt)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

from app.commands.errors import CommandError
from app.engine.results import WordTimes

FORMATS: Final = (".srt", ".vtt")

# As broadcasters have them
_LINE_CHARS = 42
_LINES = 2
_LONGEST_S: Final = 7.0
_LEAST_S: Final = 0.1
_DASHES: Final = " -\u2013\u2014\n"
_MARKS: Final = re.compile(r"[/.?&=_-]")
_ENDS_CLAUSE: Final = tuple(",.!?;:…—")


class _Shown(NamedTuple):
    """A word as it is shown, with the space before it if it has one."""

    text: str
    utterance: int
    start_s: float
    end_s: float
    inner: bool = False  # whether it is a later part of a long word


def check_subtitles(path: Path) -> None:
    """Do nothing if subtitles can be written in the format that a file's suffix names."""
    if path.suffix.lower() not in FORMATS:
        raise CommandError(f"subtitles: {path.name} must end in {' or '.join(FORMATS)}")


def subtitles(words: Iterable[WordTimes], suffix: str, text: str = "") -> str:
    """Return a subtitle file, .srt or .vtt: cues of at most two lines of 42 characters.

    Words that the sound lacks are left out. The text that was spoken tells which words are written
    without a space between them.
    """
    web = suffix.lower() == ".vtt"
    parts = ["WEBVTT\n"] if web else []
    shown = _shown((word for word in words if not word.missing), text)
    for number, cue in enumerate(_cues(shown), start=1):
        start_s = cue[0].start_s
        end_s = max(start_s + _LEAST_S, cue[-1].end_s)
        mark = "." if web else ","
        times = f"{_clock(start_s, mark)} --> {_clock(end_s, mark)}"
        lines = "\n".join(_lines(cue) or [])
        parts.append(f"{times}\n{lines}\n" if web else f"{number}\n{times}\n{lines}\n")
    return "\n".join(parts)


def _shown(words: Iterable[WordTimes], text: str) -> list[_Shown]:
    """Return the words with what is between them, each once; too long ones are cut."""
    shown: list[_Shown] = []
    before: WordTimes | None = None
    at = 0
    for word in words:
        found = text.find(word.word, at)
        between = text[at:found] if found >= 0 else ""
        end_s = word.end_s or word.start_s
        if before and _goes_on(before, word, text[at : at + len(word.word) + 1]):
            shown[-1] = shown[-1]._replace(end_s=end_s)
            before = word
            continue
        joined = at > 0 and found == at
        if shown and between.strip() and not between.strip(_DASHES):
            shown[-1] = shown[-1]._replace(text=f"{shown[-1].text} {between.strip()}")
        at = found + len(word.word) if found >= 0 else at
        parts = _parted(word.shown)
        each_s = (end_s - word.start_s) / max(1, len(parts))
        for number, part in enumerate(parts):
            since_s = word.start_s + number * each_s
            space = "" if joined or number else " "
            shown.append(
                _Shown(space + part, word.utterance, since_s, since_s + each_s, number > 0)
            )
        before = word
    return shown


def _goes_on(before: WordTimes, word: WordTimes, text: str) -> bool:
    """Return whether a word is the one before, which was spoken in two utterances."""
    again = text.lstrip().startswith(word.word)
    return word.word == before.word and word.utterance == before.utterance + 1 and not again


def _parted(word: str) -> list[str]:
    """Return the parts of a word that fit into a line, cut behind the marks of an address."""
    parts = []
    while len(word) > _LINE_CHARS:
        marks = [match.end() for match in _MARKS.finditer(word, 0, _LINE_CHARS)]
        end = marks[-1] if marks and marks[-1] > _LINE_CHARS // 2 else _LINE_CHARS
        parts.append(word[:end])
        word = word[end:]
    return [*parts, word]


def _cues(words: Sequence[_Shown]) -> Iterator[list[_Shown]]:
    """Yield the words of each cue: of one utterance, and not too many to read."""
    cue: list[_Shown] = []
    for word in words:
        if cue and word.utterance != cue[0].utterance:
            yield cue
            cue = []
        longer = [*cue, word]
        if cue and (_lines(longer) is None or word.end_s - cue[0].start_s > _LONGEST_S):
            end = _clause_end(cue)
            begins = [n for n, one in enumerate(cue) if not one.inner]
            if word.inner and begins and begins[-1] > 0:  # a word is in one cue if it can be
                end = begins[-1]
            yield cue[:end]
            longer = [*cue[end:], word]
        cue = longer
    if cue:
        yield cue


def _clause_end(cue: Sequence[_Shown]) -> int:
    """Return how many words of a full cue to show: up to a clause that ends in its second half."""
    ends = [n for n, word in enumerate(cue, start=1) if word.text.endswith(_ENDS_CLAUSE)]
    return ends[-1] if ends and ends[-1] > len(cue) // 2 else len(cue)


def _lines(cue: Sequence[_Shown]) -> list[str] | None:
    """Return the lines of a cue, about equally long; None if they are too many."""
    text = "".join(word.text for word in cue).strip()
    if len(text) <= _LINE_CHARS:
        return [text]
    units = [unit for word in cue for unit in re.findall(r"\s*\S+", word.text)]
    for width in range(len(text) // _LINES, _LINE_CHARS + 1):
        lines = _filled(units, width)
        if len(lines) <= _LINES and max(map(len, lines)) <= _LINE_CHARS:
            return lines
    return wrap(text, _LINE_CHARS) if len(cue) == 1 else None


def _filled(units: Iterable[str], width: int) -> list[str]:
    """Return lines of units, which come with the space before them, each as full as it can be."""
    lines = [""]
    for unit in units:
        longer = lines[-1] + unit
        if lines[-1] and len(longer.strip()) > width:
            lines.append(unit.lstrip())
        else:
            lines[-1] = longer.lstrip()
    return lines


def _clock(at_s: float, mark: str) -> str:
    """Return a time as hours, minutes, seconds and, after ``mark``, milliseconds."""
    minutes, milliseconds = divmod(round(1000 * at_s), 60_000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{mark}{milliseconds:03}"
