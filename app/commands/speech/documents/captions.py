"""Subtitles as text: SubRip (.srt) and WebVTT (.vtt) without numbers, times, tags and sounds."""

import html
import re
from typing import Final

from app.commands.speech.documents.document import literal

_CLOCK: Final = r"(?:\d{1,3}:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMES: Final = re.compile(rf"^\s*({_CLOCK})[ \t]*-->[ \t]*({_CLOCK})[^\n]*$", re.MULTILINE)
_TAGS: Final = re.compile(r"<[^<>\n]*>|\{\\[^{}\n]*\}")
_SOUND: Final = re.compile(r"^\s*(?:[♪♫#].*|[\[(][^\[\]()]*[\])])\s*$")
_SPEAKER: Final = re.compile(r"^\s*(?:[-\u2013\u2014]\s+|>>+\s*)")
_LONG_GAP_S: Final = 2.0
_SENTENCE_ENDS: Final = tuple(".!?…\"”')]")


def is_captions(text: str) -> bool:
    """Return whether a text is a file of subtitles."""
    head = text[:2000]
    first = _TIMES.search(head)
    if first is None:
        return False
    before = head[: first.start()].strip()
    return before.startswith("WEBVTT") or before.isdecimal() or not before


def caption_text(text: str) -> str:
    """Return what subtitles say: lines of a sentence joined, a paragraph a longer pause."""
    paragraphs: list[list[str]] = [[]]
    cues = list(_TIMES.finditer(text))
    last_s = 0.0
    for number, cue in enumerate(cues):
        end = cues[number + 1].start() if number + 1 < len(cues) else len(text)
        body = text[cue.end() : end].strip("\n")
        # A cue ends at an empty line; the number of the next one, or a note, follows.
        lines = [_said(line) for line in re.split(r"\n[ \t]*\n", body)[0].splitlines()]
        said = " ".join(filter(None, lines))
        so_far = paragraphs[-1]
        ended = bool(so_far) and so_far[-1].endswith(_SENTENCE_ENDS)
        if ended and _seconds(cue[1]) - last_s > _LONG_GAP_S:
            paragraphs.append([])
        if said and (not so_far or so_far[-1] != said):  # rolling captions repeat a line
            paragraphs[-1].append(said)
        last_s = _seconds(cue[2])
    return "\n\n".join(literal(" ".join(one)) for one in paragraphs if one)


def _said(line: str) -> str:
    line = html.unescape(_TAGS.sub("", line))
    return "" if _SOUND.match(line) else _SPEAKER.sub("", line).strip()


def _seconds(clock: str) -> float:
    """Return a time in seconds."""
    seconds = 0.0
    for part in clock.replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part)
    return seconds
