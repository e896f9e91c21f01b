"""Subtitles of a speech from the times of its words: SubRip (.srt) or WebVTT (.vtt)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from app.api.schemas import WordTimes
from app.commands.errors import CommandError

FORMATS: Final = (".srt", ".vtt")

_MOST_CHARS: Final = 84  # two lines of 42, as broadcasters have them
_LONGEST_S: Final = 7.0
_LEAST_S: Final = 0.1


def check_subtitles(path: Path) -> None:
    """Do nothing if subtitles can be written in the format that a file's suffix names.

    Raises:
        CommandError: They cannot.
    """
    if path.suffix.lower() not in FORMATS:
        raise CommandError(f"subtitles: {path.name} must end in {' or '.join(FORMATS)}")


def subtitles(words: Sequence[WordTimes], suffix: str) -> str:
    """Return the content of a subtitle file.

    Args:
        words: Of the whole speech; those that the sound lacks are left out.
        suffix: Of the file: `.srt` or `.vtt`.
    """
    web = suffix.lower() == ".vtt"
    parts = ["WEBVTT\n"] if web else []
    for number, cue in enumerate(_cues([word for word in words if not word.missing]), start=1):
        start_s = cue[0].start_s
        end_s = max(start_s + _LEAST_S, cue[-1].end_s or 0.0)
        mark = "." if web else ","
        times = f"{_clock(start_s, mark)} --> {_clock(end_s, mark)}"
        text = " ".join(word.word for word in cue)
        parts.append(f"{times}\n{text}\n" if web else f"{number}\n{times}\n{text}\n")
    return "\n".join(parts)


def _cues(words: Sequence[WordTimes]) -> Iterator[list[WordTimes]]:
    """Yield the words of each cue: of one utterance, and not too many to read."""
    cue: list[WordTimes] = []
    for word in words:
        if cue and (
            word.utterance != cue[0].utterance
            or sum(len(one.word) + 1 for one in cue) + len(word.word) > _MOST_CHARS
            or (word.end_s or word.start_s) - cue[0].start_s > _LONGEST_S
        ):
            yield cue
            cue = []
        cue.append(word)
    if cue:
        yield cue


def _clock(at_s: float, mark: str) -> str:
    """Return a time as hours, minutes, seconds and, after ``mark``, milliseconds."""
    minutes, milliseconds = divmod(round(1000 * at_s), 60_000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{mark}{milliseconds:03}"
