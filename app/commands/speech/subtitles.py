"""Subtitles of a speech from the times of its words: SubRip (.srt) or WebVTT (.vtt)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

from app.commands.errors import CommandError
from app.engine.job import WordTimes

FORMATS: Final = (".srt", ".vtt")

_LINE_CHARS, _LINES = 42, 2  # as broadcasters have them
_LONGEST_S: Final = 7.0
_LEAST_S: Final = 0.1
_ENDS_CLAUSE: Final = tuple(",.!?;:…—")


class _Shown(NamedTuple):
    """A word as it is shown, with the space before it if it has one."""

    text: str
    utterance: int
    start_s: float
    end_s: float


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
    for number, cue in enumerate(_cues(list(shown)), start=1):
        start_s = cue[0].start_s
        end_s = max(start_s + _LEAST_S, cue[-1].end_s)
        mark = "." if web else ","
        times = f"{_clock(start_s, mark)} --> {_clock(end_s, mark)}"
        lines = "\n".join(_lines(cue) or [])
        parts.append(f"{times}\n{lines}\n" if web else f"{number}\n{times}\n{lines}\n")
    return "\n".join(parts)


def _shown(words: Iterable[WordTimes], text: str) -> Iterator[_Shown]:
    """Yield the words with the spaces between them; too long ones are cut."""
    at = 0
    for word in words:
        found = text.find(word.word, at)
        joined = at > 0 and found == at
        at = found + len(word.word) if found >= 0 else at
        end_s = word.end_s or word.start_s
        parts = [word.word[n : n + _LINE_CHARS] for n in range(0, len(word.word), _LINE_CHARS)]
        each_s = (end_s - word.start_s) / max(1, len(parts))
        for number, part in enumerate(parts):
            since_s = word.start_s + number * each_s
            space = "" if joined or number else " "
            yield _Shown(space + part, word.utterance, since_s, since_s + each_s)


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
    for width in range(len(text) // _LINES, _LINE_CHARS + 1):
        lines = wrap(text, width, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= _LINES and max(map(len, lines)) <= _LINE_CHARS:
            return lines
    return wrap(text, _LINE_CHARS) if len(cue) == 1 else None


def _clock(at_s: float, mark: str) -> str:
    """Return a time as hours, minutes, seconds and, after ``mark``, milliseconds."""
    minutes, milliseconds = divmod(round(1000 * at_s), 60_000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{mark}{milliseconds:03}"
