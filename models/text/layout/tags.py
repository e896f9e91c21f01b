"""HTML, thoughts and note marks in a text that arrives in packets.

Comments, scripts, styles and the thoughts of a model are left out, tags of blocks become
paragraphs, cells are separated by a bar, and marks of notes are dropped. Tags in code are its
words. All other tags stay: they are dropped with the rest of the layout, or are SSML.
"""

# ruff: noqa: RUF001, SIM905 - superscripts and brackets of every kind; lists of words

import re
from collections.abc import Callable
from typing import Final

_SUPERSCRIPTS: Final = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_TO_SUPERSCRIPT: Final = str.maketrans("0123456789", _SUPERSCRIPTS)
_BLOCKS: Final = (
    "address|article|aside|blockquote|body|caption|dd|details|div|dl|dt|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|html|li|main|nav|ol|p|pre|section|summary|table|tbody|tfoot"
    "|thead|tr|ul"
)
_THOUGHTS: Final = r"(?:[a-z]+:)?(?:think|thinking|thought|thoughts|reasoning)"
_UNSPOKEN: Final = "script|style|template|svg|head"
_TAG_CHARS: Final = 400
SPAN_CHARS: Final = 600  # of code in a line
_NOTE_CHARS: Final = 300

_FORMULA_CHARS: Final = 1000
_TOKEN: Final = re.compile(
    r"(?P<fence>`{3,}|~{3,})"
    r"|(?P<ticks>`+)|(?P<opens>\$\$|\$(?![\s$\d])|\\[(\[]"
    r"|\\begin\{(?:equation|align|gather|multline|math)\*?\})"
    r"|<!--(?P<comment>)"
    rf"|<(?P<unspoken>{_UNSPOKEN})(?=[\s>/])[^<>]*>"
    rf"|<(?P<thought>{_THOUGHTS})(?:\s[^<>]*)?>|(?P<bracketed>\[THINK\])"
    r"|(?P<sup><sup(?:\s[^<>]*)?>)"
    r"|<(?P<address>https?://[^<>\s]+)>"
    rf"|(?P<block></?(?:{_BLOCKS})(?:\s[^<>]*)?/?>)"
    r"|(?P<break><br\s*/?>)"
    r"|(?P<cell></t[dh]\s*>)"
    r"|(?P<picture><img\s[^<>]*>)"
    rf"|(?P<nothing>\[/THINK\]|</{_THOUGHTS}\s*>"
    r"|<![A-Za-z][^<>]*>|</?\d\d?:[\d:.]+>|\{\\an?\d[^{}]*\}|【[^【】\n]{1,60}】"
    rf"|!?\[\s*\]\([^()\s]{{0,{_NOTE_CHARS}}}\)|"
    "\ue200[^\ue201]{0,100}\ue201)"
    rf"|(?P<marks>⁻?[{_SUPERSCRIPTS}](?:[{_SUPERSCRIPTS}]|[⁻⁽⁾,–-](?=[{_SUPERSCRIPTS}]))*)"
    r"|(?P<note>\[{1,2}(?:\^[^\[\]\s]{1,40}|(?:note|nb|fn)?[ .]?\d{1,3}(?:[ ,–-]+\d{1,3})*"
    r"|citation needed|clarification needed)\]{1,2})",
    re.IGNORECASE | re.MULTILINE,
)
_CODE_TAG: Final = re.compile(r"</?([A-Za-z!?][^<>\n]*?)/?>|<!--+|--+>")
_BEGUN: Final = re.compile(  # what may become a token once more text has come
    rf"\$\Z|\\(?:b[a-z]{{0,4}}(?:\{{[a-z]{{0,12}}\*?)?)?\Z|[`~]+\Z|<[^<>]{{0,{_TAG_CHARS}}}\Z|[⁻{_SUPERSCRIPTS}][{_SUPERSCRIPTS}⁻⁽⁾,–-]*\Z"
    r"|\[[^\[\]\n]{0,48}\Z|\[\[[^\[\]\n]{0,48}\]?\Z|\{(?:\\[^{}]{0,20})?\Z|【[^【】\n]{0,60}\Z"
    rf"|!\Z|!?\[\s*(?:\](?:\([^()\s]{{0,{_NOTE_CHARS}}})?)?\Z"
    "|\ue200[^\ue201]{0,100}\\Z",
    re.MULTILINE,
)
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
_ALT: Final = re.compile(r"""\salt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_TARGET: Final = re.compile(rf"\([^()\s]{{0,{_NOTE_CHARS}}}\)")
_TARGET_BEGUN: Final = re.compile(rf"\([^()\s]{{0,{_NOTE_CHARS}}}\Z")
_LAST_WORD: Final = re.compile(r"[^\W\d_]+\Z")
# Of two letters at most, only these are words that may have the mark of a note.
_SHORT_WORDS: Final = frozenset(
    "am an as at be by do go he if in is it me my no of on or so to up us we".split()
)
_POWERS: Final = frozenset(
    "sin cos tan cot sec csc log exp det max min chi eta phi psi rho tau".split()
)
# Behind these a number in brackets is a word of the sentence: "as in [12]".
_BEFORE_NUMBERS: Final = frozenset(
    "in see of by from and with or per ref refs to item eq than is are at equals".split()
)


class TagRewriter:
    """Rewrites a text that arrives in packets; the result does not depend on how it is divided.

    ``thoughts`` is whether `<think>` parts and the like are kept.
    """

    def __init__(self, *, thoughts: bool = False) -> None:
        self._thoughts = thoughts
        self._held = ""
        self._closer: re.Pattern[str] | None = None  # what ends the part that is left out
        self._fence = ""  # the marks of the block of code
        self._begun_at: int | None = None  # where a token may begin that is not complete
        self._before = "\n"  # the end of what was returned

    def push(self, packet: str) -> str:
        """Return the text that is complete with a packet, rewritten."""
        return self._rewritten(self._held + packet, complete=False)

    def end(self) -> str:
        """Return the rest, rewritten."""
        return self._rewritten(self._held, complete=True)

    def _rewritten(self, text: str, *, complete: bool) -> str:
        out: list[str] = []
        at = 0
        self._begun_at = None
        while at < len(text):
            if self._closer is not None:
                step = self._left_out(text, at, complete=complete)
            elif self._fence:
                step = self._coded(text, at, out, complete=complete)
            else:
                step = self._plain(text, at, out, complete=complete)
            if step is None:
                break
            at = step
        self._held = text[at:]
        return "".join(out)

    def _put(self, out: list[str], text: str) -> None:
        if text:
            out.append(text)
            self._before = (self._before + text)[-40:]

    def _left_out(self, text: str, at: int, *, complete: bool) -> int | None:
        """Return the index after a part that is left out."""
        assert self._closer is not None
        closes = self._closer.search(text, at)
        if closes:
            self._closer = None
            return closes.end()
        return len(text) if complete else max(at, len(text) - 20) if len(text) - at > 20 else None

    def _coded(self, text: str, at: int, out: list[str], *, complete: bool) -> int | None:
        """Return the index after a line of a block of code."""
        ends = text.find("\n", at)
        if ends < 0 and not complete:
            return None
        end = len(text) if ends < 0 else ends + 1
        line = text[at:end]
        mark = line.strip(" \t\r\n>")
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
            self._put(out, line)
        elif not mark.startswith(("```", "~~~")):
            self._put(out, _as_span(_as_words(line)))
        return end

    def _plain(self, text: str, at: int, out: list[str], *, complete: bool) -> int | None:
        """Return the index after the next thing that is rewritten, and the text before it."""
        found = _TOKEN.search(text, at)
        if not complete and (self._begun_at is None or self._begun_at < at):
            self._begun_at = _begun(text, at)
        begun = None if complete else self._begun_at
        place = found.start() if found else len(text)
        if begun is not None and begun <= place:
            self._put(out, text[at:begun])
            return begun if begun > at else None
        self._put(out, text[at:place])
        if found is None:
            return place
        kind = found.lastgroup or ""
        rewrite = _REWRITES.get(kind)
        step = rewrite(self, found, out, complete) if rewrite else self._tag(found, out)
        # Where more text is needed, what is before stays put, and this is looked at again.
        return step if step is not None else (place if place > at else None)

    def _in_line(self) -> bool:
        return bool(self._before.rpartition("\n")[2].strip(" \t>"))

    def _tag(self, found: re.Match[str], out: list[str]) -> int:
        kind = found.lastgroup
        if kind == "comment":
            self._closer = re.compile("-->")
        elif kind == "unspoken" and not found[0].endswith("/>"):
            self._closer = re.compile(rf"</{found['unspoken']}\s*>", re.IGNORECASE)
        elif kind == "thought":
            if not self._thoughts:
                self._closer = re.compile(rf"</{found['thought']}\s*>", re.IGNORECASE)
        elif kind == "bracketed":
            self._closer = None if self._thoughts else re.compile(r"\[/THINK\]", re.IGNORECASE)
        elif kind == "address":
            self._put(out, found["address"])
        elif kind == "block":
            self._put(out, "\n\n")
        elif kind == "nothing" and found[0].lower().startswith(("[/", "</t", "</r", "</s")):
            self._put(out, " ")
        elif kind == "break":
            self._put(out, "\n")
        elif kind == "cell":
            self._put(out, " | ")
        elif kind == "picture":
            alt = _ALT.search(found[0])
            self._put(out, f" {(alt[1] or alt[2] or '').strip()} " if alt else " ")
        return found.end()

    def _begin_fence(self, found: re.Match[str], out: list[str], complete: bool) -> int | None:
        ends = found.string.find("\n", found.end())
        if ends < 0 and not complete:
            return None
        end = len(found.string) if ends < 0 else ends + 1
        mark = found["fence"]
        if self._in_line():
            if mark[0] == "`":
                return self._span(found, mark, found.start(), out, complete)
            self._put(out, mark)
            return found.end()
        line = found.string[found.start() : end]
        if mark[0] == "`" and "`" in found.string[found.end() : end]:  # code in a line: ```x```
            return self._span(found, mark, found.start(), out, complete)
        self._fence = mark
        self._put(out, line)
        return end

    def _begin_span(self, found: re.Match[str], out: list[str], complete: bool) -> int | None:
        return self._span(found, found["ticks"], found.start(), out, complete)

    def _span(
        self, found: re.Match[str], ticks: str, at: int, out: list[str], complete: bool
    ) -> int | None:
        """Return the index after code in a line, or after marks that begin none."""
        text = found.string
        begin = at + len(ticks)
        closes = code_end(text, at, ticks)
        if closes is not None:
            if closes == len(text) and not complete:
                return None
            inner = _as_words(text[begin : closes - len(ticks)]).replace("\n", " ")
            self._put(out, f"{text[found.start() : begin]}{inner}{ticks}")
            return closes
        blank = _BLANK_LINE.search(text, begin, begin + SPAN_CHARS)
        if not (blank or complete or len(text) >= begin + SPAN_CHARS):
            return None
        self._put(out, text[found.start() : begin])
        return begin

    def _formula(self, found: re.Match[str], out: list[str], complete: bool) -> int | None:
        """Put a formula on one line, or the mark alone that begins none."""
        text = found.string
        mark = found["opens"]
        begin = found.end()
        most = SPAN_CHARS if mark == "$" else _FORMULA_CHARS
        closer = {"\\(": "\\)", "\\[": "\\]"}.get(mark, mark.replace("begin", "end"))
        line = text.find("\n", begin, begin + most) if mark == "$" else -1
        closes = text.find(closer, begin, line if line >= 0 else begin + most)
        while mark == "$" and closes > begin and text[closes - 1] == "\\":  # a sign within it
            closes = text.find(closer, closes + 1, line if line >= 0 else begin + most)
        end = closes + len(closer)
        if mark == "$" and re.search(r"[\w$\\]\Z", self._before):
            closes = -1
        elif closes < 0 and line < 0 and not complete and len(text) < begin + most:
            return None
        elif mark == "$" and closes >= 0:
            if end == len(text) and not complete:
                return None
            if text[closes - 1] in " \t" or re.match(r"[\w$]", text[end : end + 1]):
                closes = -1  # a price, or the name of a variable
        if closes < 0:
            self._put(out, mark)
            return begin
        # Where it has a blank behind a mark, a sentence seems to end.
        formula = " ".join(text[found.start() : end].split())
        self._put(out, re.sub(r"[.!?]\W+", lambda marks: "".join(marks[0].split()), formula))
        return end

    def _superscript(self, found: re.Match[str], out: list[str], complete: bool) -> int | None:
        """Read `<sup>`: digits as marks, endings of ordinals as part of their word."""
        text = found.string
        closes = re.compile(r"</sup\s*>", re.I).search(text, found.end(), found.end() + _NOTE_CHARS)
        if closes is None:
            if not complete and len(text) < found.end() + _NOTE_CHARS:
                return None
            self._put(out, " ")
            return found.end()
        inner = re.sub(r"<[^<>]*>", "", text[found.end() : closes.start()]).strip()
        digits = inner.strip("[]() ")
        if digits.isdecimal() and digits.isascii():
            if inner == digits:
                self._marks(digits.translate(_TO_SUPERSCRIPT), out)
        elif inner.lower() in {"st", "nd", "rd", "th"}:
            self._put(out, inner)
        elif len(digits) > 1 and digits not in {"note", "citation needed"} and inner[0] != "[":
            self._put(out, f"^{inner}" if re.fullmatch(r"[\w+-]{1,3}", inner) else f" {inner} ")
        elif len(digits) == 1 and digits.isalpha() and not self._notes():
            self._put(out, f"^{digits}")
        return closes.end()

    def _raised(self, found: re.Match[str], out: list[str], _: bool) -> int | None:
        self._marks(found[0], out)
        return found.end()

    def _marks(self, marks: str, out: list[str]) -> None:
        """Put superscript digits, unless they are the mark of a note."""
        if not self._notes():
            self._put(out, marks)

    def _notes(self) -> bool:
        """Return whether a raised number here is the mark of a note, not an exponent."""
        before = self._before.rstrip("*_")
        last = before[-1:]
        word = _LAST_WORD.search(before)
        if word is not None:
            lower = word[0].lower()
            if before[: -len(word[0])].endswith(tuple("0123456789/·\\")) or not word[0].isascii():
                return len(word[0]) > 3
            if re.search(r"\d\s\Z", before[: -len(word[0])]) and len(word[0]) <= 4:
                return False  # 5 km²
            return lower in _SHORT_WORDS or (len(word[0]) > 2 and lower not in _POWERS)
        if last == ")":
            inner = before.rpartition("(")[2]
            return not re.fullmatch(r"[\w\s+−*/.-]{1,20}\)", inner) or bool(
                re.search(r"[A-Za-z]{3}", inner)
            )
        return not last.isalnum() and last not in {"]", "}", "′", "|"}

    def _cited(self, found: re.Match[str], out: list[str], complete: bool) -> int | None:
        """Drop a number in brackets that is the mark of a note, with the address behind it."""
        text = found.string
        end = found.end()
        upcoming = text[end : end + 1]
        if not upcoming and not complete:
            return None
        if upcoming == "(":
            if _TARGET_BEGUN.match(text, end) and not complete:
                return None
            target = _TARGET.match(text, end)
            end = target.end() if target else end
        mark = found["note"]
        named = mark.lstrip("[")[:1] == "^" or not mark.strip("[]")[:1].isdigit()
        starts = not self._in_line()
        if starts and upcoming == ":":  # the text of the note
            if named:
                return end + 1
            self._put(out, mark)
            return end
        if named or self._cites(mark, linked=end > found.end(), starts=starts):
            return end
        self._put(out, text[found.start() : end])
        return end

    def _cites(self, mark: str, *, linked: bool, starts: bool) -> bool:
        """Return whether a number in brackets is the mark of a note."""
        if mark.startswith("[["):
            return True
        if starts or mark.strip("[]")[:1] == "0" or self._before.endswith("]"):
            return False
        before = self._before.rstrip("*_ ")
        word = _LAST_WORD.search(before)
        if self._before[-1:].isspace():
            return linked or not word or word[0].lower() not in _BEFORE_NUMBERS
        return linked or (not word and not before[-1:].isalnum()) or bool(word and len(word[0]) > 2)


def code_end(text: str, at: int, ticks: str) -> int | None:
    """Return the index after the code in a line that ``ticks`` begin at an index, if they do."""
    begin = at + len(ticks)
    closes = re.compile(rf"(?<!`){ticks}(?!`)").search(text, begin, begin + SPAN_CHARS)
    blank = _BLANK_LINE.search(text, begin, begin + SPAN_CHARS)
    if closes is None or (blank is not None and blank.start() < closes.start()):
        return None
    return closes.end()


def _begun(text: str, at: int) -> int:
    """Return where something begins that may become a token once more text has come."""
    near = max(at, len(text) - _TAG_CHARS - 1)
    found = _BEGUN.search(text, near)
    return found.start() if found else len(text)


def _as_words(code: str) -> str:
    """Return code whose tags are words: what is written there is shown, not meant."""
    return _CODE_TAG.sub(lambda match: f" {match[1]} " if match[1] else " ", code)


def _as_span(line: str) -> str:
    """Return a line of a block of code as code in a line, which stands alone as such."""
    code = line.strip()
    if not re.search(r"\w", code) or len(code) > SPAN_CHARS - 20:
        return line
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", code)), default=0))
    blank = " " if "`" in (code[0], code[-1]) else ""
    return f"{ticks}{blank}{code}{blank}{ticks}{line[len(line.rstrip()) :]}"


_Rewrite = Callable[[TagRewriter, re.Match[str], list[str], bool], int | None]
_REWRITES: Final[dict[str, _Rewrite]] = {
    "fence": TagRewriter._begin_fence,
    "ticks": TagRewriter._begin_span,
    "opens": TagRewriter._formula,
    "sup": TagRewriter._superscript,
    "marks": TagRewriter._raised,
    "note": TagRewriter._cited,
}
