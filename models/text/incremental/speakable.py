"""Detection of the first word in an incremental text, ignoring pauses, tags and smileys."""

import re
from typing import Final

from models.text.incremental.borders import PAUSE, RATE, VOICE

_TAG_END: Final = re.compile(r"\n[ \t]*+>[ \t]|[<>@]")  # the first alternative is a quoted line
_THING: Final = re.compile(
    rf"{PAUSE}\s*+|{VOICE}|{RATE}"
    r"|(?P<tag></?[A-Za-z])"
    rf"|(?:(?<!\S)|(?<=s\])|(?<=>))(?:[:;=][-o']?|8[-o'])[()DPp/|\[\]](?=\s|$|<|{PAUSE})"  # :-)
    r"|\[[^\[\]\n\w]++\]\((?:https?:|/|#)[^()\s]*+\)"  # a link without words
    r"|(?P<word>[^\W_])",
    re.IGNORECASE,
)


class Speakable:
    """Answers whether a text has a word before increasing indices, in one pass."""

    def __init__(self) -> None:
        self._read_to = 0
        self._word = self._tag = False

    def within(self, text: str, end: int) -> bool:
        """Return whether there is a word before an index; an open tag counts as one.

        Between calls text may be extended and ``end`` grow.
        """
        while not self._word and self._read_to < end:
            found = (_TAG_END if self._tag else _THING).search(text, self._read_to, end)
            self._read_to = found.end() if found else end
            if found and self._tag:
                # If another "<" or an "@" comes first it was no tag, and its letters are a word.
                self._word = found[0] != ">"
                self._tag = False
            elif found:
                self._word = bool(found["word"])
                self._tag = bool(found["tag"])
        return self._word or self._tag
