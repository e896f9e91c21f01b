"""HTML as blocks of text: paragraphs, headings, items of lists, rows of tables."""

# ruff: noqa: SIM905 - lists of names

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

from app.commands.speech.documents.document import literal

HEADING_TAGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCKS: Final = HEADING_TAGS | frozenset(
    "address article aside blockquote body caption center dd details dialog div dl dt"
    " fieldset figcaption figure footer form header hgroup hr html legend li main ol p"
    " pre section summary table tbody tfoot thead tr ul".split()
)
# What is not read: it is not for readers, or is drawn.
_SILENT: Final = frozenset(
    "audio button canvas datalist head iframe map noscript object rp rt script select"
    " style svg template textarea video".split()
)
_VOID: Final = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()
)
_ENDS_WITH_BLOCK: Final = frozenset({"p", "li", "tr", "dt", "dd"})
_CELLS: Final = frozenset({"td", "th"})
# Parts of a book that are beside its text: DPUB-ARIA and EPUB's vocabulary.
_ASIDE: Final = frozenset(
    "backlink doc-backlink doc-endnote doc-endnotes doc-footnote doc-noteref"
    " doc-pagebreak doc-toc endnote endnotes footnote footnotes landmarks noteref"
    " page-list pagebreak rearnote rearnotes toc".split()
)

_NOTES: Final = frozenset({"footnote", "footnote-back", "footnote-ref", "footnotes"})  # pandoc's
_DIGITS: Final = re.compile(r"\s*\[?\d{1,3}\]?\s*\Z")
_BASE: Final = re.compile(r"(?:\d|\)|(?<![^\W_])[^\W\d_]{1,2})\Z")  # of an exponent: x, km, 10
_POWERS: Final = {"2": "\u00b2", "3": "\u00b3"}
_BEFORE_PARTS: Final = 3
_BESIDE: Final = _ASIDE | _NOTES


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph or so."""

    text: str
    tag: str  # of the element that begins it
    ids: tuple[str, ...] = ()  # of elements that begin in or before it


class _PageParser(HTMLParser):
    """Collects blocks; elements that are not closed end with the one around them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[TextBlock] = []
        self.title = ""
        self._open: list[tuple[str, bool]] = []  # name, whether it is silent
        self._names = Counter[str]()  # of the open ones
        self._silent = 0  # how many of them are
        self._text: list[str] = []
        self._tag = "p"
        self._ids: list[str] = []
        self._numbers: list[int | None] = []  # of the items of open lists
        self._marker = ""  # of the item of a list that has begun
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = {name: value or "" for name, value in attrs}
        if tag == "title":
            self._in_title = not self.title
        if tag in _BLOCKS:
            self._end_block(tag)
            if self._open and (tag == "body" or self._open[-1][0] in _ENDS_WITH_BLOCK):
                self._close_unclosed(tag)
        if identity := given.get("id") or (given.get("name") if tag == "a" else None):
            self._ids.append(identity)
        if tag in {"ol", "ul"}:
            start = given.get("start", "1")
            first = int(start) if start.isascii() and start.isdigit() else 1
            self._numbers.append(first if tag == "ol" else None)
        elif tag == "li" and self._numbers:
            number = self._numbers[-1]
            self._marker = "- " if number is None else f"{number}. "
            self._numbers[-1] = None if number is None else number + 1
        elif tag == "br":
            self._text.append("\n")
        elif tag in _CELLS and "".join(self._text).strip():
            self._text.append(", ")
        if tag not in _VOID:
            silent = tag in _SILENT or _is_aside(tag, given)
            if (tag == "sup" and self._names["a"]) or (tag == "a" and self._names["sup"]):
                silent = True  # the mark of a note
            self._open.append((tag, silent))
            self._names[tag] += 1
            self._silent += silent

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin and end an element, as XHTML has it."""
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """End an element, and those in it that were not closed."""
        if tag == "title":
            self._in_title = False
        if not self._names[tag]:
            return
        if tag in _BLOCKS:
            self._end_block("p")
        if tag in {"ol", "ul"} and self._numbers:
            self._numbers.pop()
        if tag == "li":
            self._marker = ""
        while self._close_last() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Add text."""
        if self._in_title:
            self.title += data
        elif not self._silent and self._open and self._open[-1][0] == "sup" and _DIGITS.match(data):
            self._text.append(_raised(data.strip("[] "), "".join(self._text[-_BEFORE_PARTS:])))
        elif not self._silent:
            kept = self._names["pre"] > 0
            self._text.append(data if kept else " ".join(f"|{data}|".split())[1:-1])

    def close(self) -> None:
        """End the document."""
        super().close()
        self._end_block("p")

    def _close_unclosed(self, tag: str) -> None:
        """End what HTML ends without saying so: the head before the body, a paragraph, an item."""
        if tag == "body" and self._names["head"]:
            while self._close_last() != "head":
                pass
        elif self._open[-1][0] in {"p", tag}:
            self._close_last()

    def _close_last(self) -> str:
        """End the innermost element; return its name."""
        name, silent = self._open.pop()
        self._names[name] -= 1
        self._silent -= silent
        return name

    def _end_block(self, tag: str) -> None:
        lines = "".join(self._text).split("\n")
        text = "\n".join(filter(None, (" ".join(line.split()) for line in lines)))
        if any(one.isalnum() for one in text):
            said = self._marker + literal(text)
            self.blocks.append(TextBlock(said, self._tag, tuple(self._ids)))
            self._ids = []
            self._marker = ""
        self._text = []
        self._tag = tag


def read_blocks(source: str) -> tuple[str, list[TextBlock]]:
    """Return the title of an HTML or XHTML document, and its blocks."""
    reader = _PageParser()
    reader.feed(source)
    reader.close()
    return " ".join(reader.title.split()), reader.blocks


def _raised(digits: str, before: str) -> str:
    """Return a raised number as an exponent, or nothing: behind a word it is the mark of a note."""
    if not _BASE.search(before):
        return ""
    return _POWERS.get(digits, f"^{digits}")


def _is_aside(tag: str, given: Mapping[str, str]) -> bool:
    """Return whether an element is beside the text: a note, a list of contents, a hidden part."""
    kinds = {*given.get("epub:type", "").lower().split(), *given.get("role", "").lower().split()}
    hidden = "hidden" in given or given.get("aria-hidden") == "true"
    styled = given.get("style", "").replace(" ", "").lower()
    kinds |= _NOTES & {*given.get("class", "").split()}
    return tag == "nav" or hidden or "display:none" in styled or not kinds.isdisjoint(_BESIDE)
