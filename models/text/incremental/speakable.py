"""Whether a text that grows has a word to speak yet, or only pauses, tags, smileys and marks."""

import re
from typing import Final

from models.text.incremental.borders import PAUSE

_TAG_END: Final = re.compile(r"\n[ \t]*+>[ \t]|[<>@]")  # the first is a line that is quoted
_THING: Final = re.compile(
    rf"{PAUSE}\s*+"
    r"|(?P<tag></?[A-Za-z])"
    rf"|(?:(?<!\S)|(?<=s\])|(?<=>))[:;=8][-o']?[()DPp/|\[\]](?=\s|$|<|{PAUSE})"  # :-)
    r"|\[[^\[\]\n\w]++\]\((?:https?:|/|#)[^()\s]*+\)"  # a link without words
    r"|(?P<word>[^\W_])",
    re.IGNORECASE,
)


class Speakable:
    """What the beginning of a text has to speak; each character is read once."""

    def __init__(self) -> None:
        """Begin before the first character."""
        self._read_to = 0
        self._word = self._tag = False

    def within(self, text: str, end: int) -> bool:
        """Tell whether there is a word before a place; a tag that is open still may be none.

        Args:
            text: The one of the calls before, with more at its end.
            end: No earlier than that of the call before.
        """
        while not self._word and self._read_to < end:
            if self._tag:
                self._close_tag(text, end)
            else:
                self._find(text, end)
        return self._word or self._tag

    def _find(self, text: str, end: int) -> None:
        found = _THING.search(text, self._read_to, end)
        self._read_to = found.end() if found else end
        if found:
            self._word, self._tag = bool(found["word"]), bool(found["tag"])

    def _close_tag(self, text: str, end: int) -> None:
        found = _TAG_END.search(text, self._read_to, end)
        self._read_to = found.end() if found else end
        if found:
            # What another "<" or an "@" ends was no tag, and its letters are a word.
            self._word, self._tag = found[0] != ">", False
