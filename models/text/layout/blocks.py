"""Lines of a text that arrives in packets: which are layout, and which are paragraphs.

Front matter, rulers of tables, fences with their language, definitions of links and the timings of
subtitles are left out. Items of lists, headings, rows, lines of code and lines of `Name: value`
become paragraphs, and words divided at the end of a line are joined.

A line is looked at until its kind is certain, mostly two characters, and then passed on.
"""

# ruff: noqa: RUF001, SIM905 - bullets and dashes of every kind; lists of words

import re
from typing import Final, NamedTuple

_FRONT_CHARS: Final = 4000
_LINE_CHARS: Final = 60  # of a line that is certainly known
_WRAPPED_CHARS: Final = 60  # a line as long as this may go on in the next

BULLET: Final = "[-*+•‣·◦▪●○■□–—➤►▶✓✔☑✅❌⚠⭐👉🔹🔸]\ufe0f?"
LETTER: Final = r"(?:(?!p\.[ \t]+\d)[a-z]|[ivx]{2,4})"  # p. 7 is a page
ROMAN: Final = r"(?=[IVX]{2})X{0,2}(?:IX|IV|V?I{0,3})\."  # II. to XXVIII., no pronoun
TITLE: Final = (
    r"[ \t]+[A-Z][^.!?\n]{0,60}$"  # what follows the numeral of a heading: I. The Arrival
)
DASHED: Final = r"\d{1,3}[ \t]+[-–—][ \t]+(?=[^\W\d_]{2})"  # 1 - Mix, and no sum
_QUOTE: Final = re.compile(r"[ \t]*(?:>[ \t]?)+")
_KEY: Final = re.compile(r"[\w\"'-][\w .\"'-]*[ \t]*[:=](?:\s|$)")
_TIMING: Final = re.compile(r"[ \t]*(?:\d+:)?\d\d?:\d\d[.,]\d{3}[ \t]*-->")
_MAYBE_TIMING: Final = re.compile(r"[ \t]*\d[\d:.,]*[ \t]*-{0,2}>?\Z")
_NUMBER: Final = re.compile(r"[ \t]*\d{1,6}[ \t\r]*\Z")
_RULER: Final = re.compile(
    r"[ \t]*(?:[|+: \t]*-[-|+: \t]*|=+|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|[|+]?[=+|:]{3,})[ \t\r]*\Z"
)
_MAYBE_RULER: Final = re.compile(r"[ \t]*[-=*_+|: \t]*[\r]?\Z")
_ITEM: Final = re.compile(
    rf"[ \t]*(?:{BULLET}[ \t]+|[*_]{{0,3}}(?:\d{{1,3}}\\?[.)]|\(\d{{1,2}}\)|{LETTER}[.)]"
    rf"|\({LETTER}\)|[A-Z]\)|{ROMAN})[*_]{{0,3}}[ \t]+)\S|[ \t]*\d\ufe0f?\u20e3|[ \t]*{DASHED}"
)
_MAYBE_ITEM: Final = re.compile(
    rf"[ \t]*(?:(?:{BULLET})?[ \t]*|[*_]{{0,3}}\(?"
    r"(?:\d{0,3}\ufe0f?|[ivx]{0,4}|[IVX]{2,6}|[A-Za-z])"
    r"\\?[.)]?[*_]{0,3}[ \t]*"
    r"|\d{1,3}[ \t]+[-–—][ \t]*[^\W\d_]?)\Z"
)
_CAPITAL: Final = re.compile(r"[ \t]*([A-Z])\.[ \t]+\S")
_HEADING: Final = re.compile(r"[ \t]*#{1,6}[ \t]+\S")
_MAYBE_HEADING: Final = re.compile(r"[ \t]*#{0,6}[ \t]*\Z")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_MAYBE_FENCE: Final = re.compile(r"[ \t]*(?:`{0,2}|~{0,2})\Z")
_DEFINITION: Final = re.compile(
    r"[ \t]*\[[^\[\]\n]{1,60}\]:[ \t]*<?(?:https?:|\.{0,2}/|#|\S+\.[A-Za-z])\S*"
    r"(?:[ \t]+[\"'(].*[\"')])?[ \t]*\Z"
)
_MAYBE_DEFINITION: Final = re.compile(r"[ \t]*\[[^\[\]\n]{0,60}(?:\](?::[^\n]{0,160})?)?\Z")
# A line of its own, such as a direction of a play; markup has a colon or no word.
_BRACKETED: Final = re.compile(r"[ \t]*\[[^\[\]\n:]*[a-z]{2}[^\[\]\n:]*\][ \t\r]*\Z")
_NUMBERED: Final = re.compile(rf"[ \t]*[IVX]\.{TITLE}")
_FORMULA: Final = re.compile(
    r"[ \t]*(?:\$\$[^$]*\$\$|\\\[.*\\\]|\\begin\{.*\\end\{[a-z]+\*?\})[.,;]?[ \t\r]*\Z"
)
_KEYCAP: Final = re.compile("([0-9])\ufe0f?\u20e3")
_NAMED: Final = re.compile(
    r"[ \t]*[*_]{0,3}[^\W_][\w ()/&'.-]{0,30}[*_]{0,3}[:：][*_]{0,3}[ \t]+\S"
)
_MAYBE_NAMED: Final = re.compile(
    r"[ \t]*[*_]{0,3}(?:[^\W_][\w ()/&'.-]{0,30}[*_]{0,3}[:：]?[*_]{0,3}[ \t]*)?\Z"
)
_BOLD: Final = re.compile(r"[ \t]*(\*\*|__)(?=\S)[^*]+\1:?[ \t\r]*\Z")
_DIVISION: Final = re.compile(
    r"[ \t]*[*_]{0,3}(?:chapter|act|part|scene|book|volume|canto|stave)[ \t]+"
    r"(?:[IVXLC]{1,8}|\d{1,3})"
    r"\b(?:[.:]?[ \t\r]*|[.: \t\u2013\u2014-]+[A-Z\d][^.!?]{0,60}[.]?)[*_]{0,3}[ \t\r]*\Z",
    re.IGNORECASE,
)
_DIVIDED: Final = re.compile("[^\\W\\d_]{2}-\\Z|\u00ad\\Z")
# Words of two parts keep their hyphen where a line ends behind it.
_FIRST_PARTS: Final = frozenset(
    "all cross ever ex far first full good half hard high ill like long low mid multi near never "
    "new non off old on one open over part past post pre quasi right second self semi short "
    "single so soft still strong third three two ultra under up well wide world year twenty "
    "thirty forty fifty sixty seventy eighty ninety".split()
)
_WORD: Final = re.compile(r"[^\W\d_]+")


class _Line(NamedTuple):
    """What is known of the line before."""

    kind: str = "text"
    chars: int = 0
    label: str = ""  # the capital letter of an item


class BlockRewriter:
    """Rewrites a text that arrives in packets; the result does not depend on how it is divided."""

    def __init__(self) -> None:
        self._held = ""
        self._in_line = False  # whether the kind of the line is known
        self._line = _Line()
        self._head = ""  # the beginning of the line
        self._text = ""  # its end
        self._breaks = 0  # line ends before the next line
        self._after_blank = False
        self._fence = ""
        self._table = False
        self._subtitles = False
        self._blocks_of_titles = False  # of WebVTT, up to the next blank line
        self._number = ""  # a line that may be the number of a subtitle
        self._breaks_before_number = 0
        self._skips = False  # whether the rest of the line is left out
        self._begun = False  # whether the text can have no front matter any more
        self._paired = False  # whether the line before is one of several `Name: value`

    def push(self, packet: str) -> str:
        """Return the text that is complete with a packet, rewritten."""
        text = (self._held + packet).replace("\r\n", "\n")
        held = "\r" if text.endswith("\r") else ""
        rewritten = self._rewritten(text.removesuffix("\r"), complete=False)
        self._held += held
        return rewritten

    def end(self) -> str:
        """Return the rest, rewritten."""
        return self._rewritten(self._held, complete=True)

    def _rewritten(self, text: str, *, complete: bool) -> str:
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._skips:
                ends = text.find("\n", at)
                self._skips = ends < 0
                at = len(text) if ends < 0 else ends + 1
                continue
            step = (self._rest if self._in_line else self._start)(text, at, out, complete)
            if step is None:
                break
            at = step
        self._held = text[at:]
        if complete:
            self._flush_number(out)
        return "".join(out)

    # The rest of a line.

    def _rest(self, text: str, at: int, out: list[str], complete: bool) -> int | None:
        """Pass on what there is of a line."""
        ends = text.find("\n", at)
        end = len(text) if ends < 0 else ends
        part = text[at:end]
        if self._line.kind == "row":
            end = at + len(part if ends >= 0 or complete else part.rstrip(" \t|\\"))
            part = re.sub(r"[ \t]*\|[ \t]*", " | ", text[at:end].replace("\\|", " "))
            part = part if self._text else part.lstrip()
        divided = self._line.kind not in {"row", "code"} and (
            _DIVIDED.search((self._text + part)[-8:])
        )
        if divided and not complete and ends < 0 and end == len(text) and part:
            hyphen = end - 1
            self._pass(text[at:hyphen], out)
            return hyphen if hyphen > at else None
        if divided and ends >= 0:
            step = self._joined(text, at, ends, out, complete)
            if step is not None and step >= 0:
                return step
            if step is None:
                return None
        self._pass(part, out)
        if ends < 0:
            return end if end > at else None
        self._close(self._text)
        return ends + 1

    def _joined(self, text: str, at: int, ends: int, out: list[str], complete: bool) -> int | None:
        """Return the index of the second part of a word that two lines divide; -1 if none does."""
        part = text[at:ends]
        after = re.compile(r"[ \t]*").match(text, ends + 1)
        place = after.end() if after else ends + 1
        word = _WORD.match(text, place)
        if not word and place < len(text):
            return -1
        if not complete and (not word or word.end() == len(text)):
            return None
        soft = (self._text + part)[-1:] == "\u00ad"
        joins = word is not None and (soft or word[0][0].islower())
        if word is None or not joins or word[0] in {"and", "or", "to", "und", "bis"}:
            return -1
        first = _WORD.findall((self._text + part)[-40:])
        compound = re.search(r"\w-\w+-\Z", (self._text + part)[-40:])
        keeps = not soft and bool(compound or not first or first[-1].lower() in _FIRST_PARTS)
        self._pass(part if keeps else part[:-1], out)
        return place

    def _pass(self, part: str, out: list[str]) -> None:
        if part:
            out.append(part)
            self._head = (self._head + part)[:_LINE_CHARS]
            self._text = (self._text + part)[-200:]
            self._line = self._line._replace(chars=self._line.chars + len(part))

    def _close(self, line: str) -> None:
        """End a line."""
        alone = _BOLD.match(line) or _DIVISION.match(line)
        if self._line.kind == "text" and alone and self._line.chars <= len(line):
            self._line = self._line._replace(kind="heading")
        elif self._line.kind == "text" and self._line.chars <= len(line) and _FORMULA.match(line):
            self._line = self._line._replace(kind="formula", chars=0)
        elif self._line.kind == "text" and self._line.chars <= len(line) and _NUMBERED.match(line):
            self._line = self._line._replace(kind="item")
        elif self._line.kind == "text" and _NAMED.match(self._head):
            self._line = self._line._replace(kind="named")
        self._in_line = False
        self._breaks = 1
        self._head = self._text = ""

    # The beginning of a line.

    def _start(self, text: str, at: int, out: list[str], complete: bool) -> int | None:
        """Look at the beginning of a line, and pass it on once its kind is certain."""
        ends = text.find("\n", at)
        known = complete or ends >= 0
        if not self._begun:
            step = self._front(text, at, ends, complete)
            if step is None or step > at:
                return step
        line = text[at : ends if ends >= 0 else len(text)]
        if known and not line.strip():
            if ends < 0:
                return len(text)
            self._blank()
            return ends + 1
        if not known and not line.strip():
            return None
        if self._blocks_of_titles:
            return (ends + 1 if ends >= 0 else len(text)) if known else None
        quote = None if self._fence else _QUOTE.match(line)
        if quote and not known and quote.end() == len(line):
            return None
        begin = at + (quote.end() if quote else 0)
        line = line[quote.end() :] if quote else line
        if quote and known and not line.strip():
            if ends < 0:
                return len(text)
            self._blank()
            return ends + 1
        kind = self._kind(line, known or len(line) > 4 * _LINE_CHARS)
        if kind is None:
            return None
        return self._begin(kind, text, begin, ends, out)

    def _blank(self) -> None:
        self._breaks += 1
        self._after_blank = True
        self._table = False
        self._blocks_of_titles = False

    def _front(self, text: str, at: int, ends: int, complete: bool) -> int | None:
        """Return the index after front matter, or the same if the text has none."""
        rest = text[at : at + 3]
        mark = next((one for one in ("---", "+++") if one.startswith(rest)), "")
        if len(rest) < 3 and mark and not complete:
            return None
        first = text[at : ends if ends >= 0 else len(text)]
        if rest != mark or first.strip() != mark or (ends < 0 and complete):
            self._begun = True
            return at
        if ends < 0:
            return None
        second_end = text.find("\n", ends + 1)
        second = text[ends + 1 : second_end if second_end >= 0 else len(text)]
        if _KEY.match(second):
            closes = re.compile(rf"^(?:{re.escape(mark)}|\.\.\.)[ \t\r]*(?:\n|\Z)", re.M).search(
                text, ends + 1, at + _FRONT_CHARS
            )
            if closes and (complete or closes[0].endswith("\n")):
                self._begun = True
                return closes.end()
            if not complete and len(text) < at + _FRONT_CHARS:
                return None
        elif second_end < 0 and not complete and len(second) < _LINE_CHARS:
            return None
        self._begun = True
        return at

    def _kind(self, line: str, known: bool) -> str | None:
        """Return the kind of a line, or None while it is not certain."""
        if self._fence:
            return self._kind_of_code(line) if known else None
        for kind, pattern, maybe in _KINDS:
            here = kind != "titles" or "W" in line[:2] or self._subtitles
            if here and (known or kind not in _WHOLE) and pattern.match(line):
                return kind
            if not known and maybe.match(line):
                return None
        if (self._table or (self._subtitles and self._after_blank)) and not known:
            return None
        if self._subtitles and self._after_blank:
            return "number"  # or the name of a subtitle
        if line.lstrip().startswith("|") or (self._table and "|" in line):
            return "row"
        if self._line.kind == "named":
            if _NAMED.match(line):
                return "named"
            if not known and len(line) < _LINE_CHARS and _MAYBE_NAMED.match(line):
                return None
        return "text"

    @staticmethod
    def _kind_of_code(line: str) -> str:
        for kind, pattern, _ in _KINDS:
            if kind == "fence" and pattern.match(line):
                return kind
        return "code"

    def _begin(self, kind: str, text: str, at: int, ends: int, out: list[str]) -> int:
        """Begin a line of a kind."""
        end = ends if ends >= 0 else len(text)
        after = ends + 1 if ends >= 0 else len(text)
        line = text[at:end]
        self._after_blank = False
        if kind == "number" and ends >= 0:
            self._flush_number(out)
            self._number = line
            self._breaks_before_number = self._breaks
            self._breaks = 1
            return after
        if kind in _LEFT_OUT:
            self._skips = ends < 0
        if kind == "timing":
            self._number = ""
            self._breaks = 1
            return after
        self._flush_number(out)
        if kind == "titles":
            self._subtitles = self._blocks_of_titles = True
            return after
        if kind == "fence":
            return self._fenced(line, after)
        if kind == "code" and not re.search(r"\w", line):
            return after
        if kind in {"ruler", "definition"}:
            self._table = self._table or "|" in line
            self._line = _Line("row" if "|" in line else "heading")
            self._breaks = max(self._breaks, 1)
            return after
        capital = _CAPITAL.match(line)
        self._open(_Line(kind, 0, capital[1] if capital else ""), line, out)
        self._in_line = True
        if kind == "row":
            return at + len(line) - len(line.lstrip())
        if keycap := _KEYCAP.match(line):
            self._pass(f"{keycap[1]}.", out)
            return at + keycap.end()
        lead = at + len(line) - len(line.lstrip()) if kind == "code" else at
        return lead

    def _fenced(self, line: str, after: int) -> int:
        """Begin or end a block of code."""
        mark = line.strip()
        opens = _FENCE.match(line)
        if opens and not self._fence:
            self._fence = opens[1]
        elif mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
        self._line = _Line("code")
        self._breaks = max(self._breaks, 1)
        return after

    def _flush_number(self, out: list[str]) -> None:
        """Pass on a line of digits that was no subtitle's."""
        if self._number:
            number = self._number
            breaks = self._breaks
            self._number = ""
            self._breaks = self._breaks_before_number
            self._open(_Line(), number, out)
            out.append(number)
            self._line = _Line("text", len(number))
            self._breaks = breaks

    def _open(self, line: _Line, text: str, out: list[str]) -> None:
        """Write what is between the line before and this one."""
        if self._breaks:
            parts = self._breaks > 1 or self._parts(line, text)
            out.append("\n\n" if parts else "\n")
        self._paired = line.kind == "named" and self._line.kind == "named"
        self._line = line
        self._breaks = 0

    def _parts(self, line: _Line, text: str) -> bool:
        """Return whether a line is a paragraph apart from the one before."""
        before = self._line
        alone = {"item", "heading", "row", "code", "bracketed"}
        if line.kind in alone or before.kind in alone - {"item"}:
            return True
        if before.kind == line.kind == "named":
            return True
        if before.label and line.label:
            return ord(line.label) == ord(before.label) + 1
        if before.kind in {"item", "formula"} or (before.kind == "named" and self._paired):
            goes_on = text[:1].isspace() or text[:1].islower() or before.chars >= _WRAPPED_CHARS
            return not goes_on
        return False


_TITLES: Final = re.compile(
    r"\ufeff?WEBVTT(?:[ \t]+-.*)?[ \t\r]*\Z|(?:NOTE(?:[ \t].*)?|(?:STYLE|REGION)[ \t\r]*)\Z"
)
_MAYBE_TITLES: Final = re.compile(r"\ufeff?(?:W|WE|WEB|WEBV|WEBVT|WEBVTT\b.{0,200}|WEBVTT)?\Z")
_WHOLE: Final = frozenset({"titles", "number", "ruler", "fence", "definition", "bracketed"})
"""Kinds that only a whole line can be of."""

_LEFT_OUT: Final = frozenset({"titles", "timing", "definition"})
_KINDS: Final = (
    ("titles", _TITLES, _MAYBE_TITLES),
    ("timing", _TIMING, _MAYBE_TIMING),
    ("number", _NUMBER, _NUMBER),
    ("ruler", _RULER, _MAYBE_RULER),
    ("fence", _FENCE, _MAYBE_FENCE),
    ("heading", _HEADING, _MAYBE_HEADING),
    ("definition", _DEFINITION, _MAYBE_DEFINITION),
    ("bracketed", _BRACKETED, _MAYBE_DEFINITION),
    ("item", _ITEM, _MAYBE_ITEM),
)
