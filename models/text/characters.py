"""Characters of a text: what is folded, what no voice reads and is left out, and its names."""

# ruff: noqa: RUF001 - quotes and dashes of every kind, to be told apart

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from models.text.errors import TextError
from models.text.layout.emoticons import EMOTICON
from models.text.normalise.vocabulary import SYMBOLS
from models.text.source import Rewritten

INLINE: Final = "\ue000-\uf8ff"
"""The Private Use Area as a regex range: `markup` puts inline phonemes there."""

_FOLDS: Final = str.maketrans({
    **dict.fromkeys("‘’‚‛ʼʻ′´", "'"),
    **dict.fromkeys("“”„‟″", '"'),
    **dict.fromkeys("‐‑‒−", "-"),
    **dict.fromkeys("\u2028\u2029", "\n"),
    "…": "...",
    **dict.fromkeys("\u2044\u2215", "/"),
    "\u2206": "Δ",
    "№": " number ",
    "™": " trademark",
})
_FOLDED: Final = re.compile(f"[{''.join(map(chr, _FOLDS))}]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_DIGIT_LIKE: Final = "²³°"  # NFKC would turn these into digits
_STARS: Final = re.compile(r"(?<=\d)[ \u00a0]?[★⭐]\ufe0f?")
_RAISED: Final = re.compile("⁻[⁰¹²³⁴-⁹]+|[⁰¹²³⁴-⁹]{2,}")
# What NFKC may join to the character before it: accents, and the later parts of a Korean syllable.
_COMPOSED: Final = (
    "\u0300-\u036f\u1160-\u11ff\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
    "\uff9e-\uffdc"
)
_FOREIGN: Final = "\ufffc"  # stands for a letter that is not read, until all are known
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # ECMA-48: colours of a terminal
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PAGE: Final = re.compile("[\x0b\x0c\x1c-\x1e]")
_SIGN: Final = rf"(?:[^\w\s{INLINE}{_FOREIGN}]|_)"
_FOREIGN_TOKEN: Final = rf"{_SIGN}*+{_FOREIGN}(?:{_SIGN}|{_FOREIGN})*+(?!\S)"
# What has no word but those, with what stands around and between them: (東京), or a shrug.
_UNREAD: Final = re.compile(
    rf"(?<!\S){_FOREIGN_TOKEN}(?:[ \t]++{_FOREIGN_TOKEN})*+"
    r"(?P<dash>[ \t]+[\u2013\u2014-](?=\s))?"
    rf"|[(\[{{\"']{_FOREIGN}++[)\]}}\"']|[-_']?{_FOREIGN}++(?:'s\b|[-_'])?"
)
_MARKS: Final = ".,;:!?\u2026\u2013\u2014"
_OPENING = "([{\"'"
_CLOSING = ")]}\"'"
_TRAILING: Final = re.compile(r"(?:(?<![.,;:!?\u2026)\]}\"'])|\A)[.,;:!?\u2026)\]}\"']*+\Z")
# Boxes, blocks and shapes are drawn, not read.
_SAMPLED: Final = re.compile("[\u2500-\u25ff]")
_SYLLABLES: Final = frozenset({
    "LETTER",
    "SYLLABLE",
    "SMALL",
    "CAPITAL",
    "UNIFIED",
    "VOWEL",
    "SIGN",
})
_JOINED: Final = frozenset({"Cf", "Mn", "Mc", "Me", "Sk"})  # of a letter or emoji before
_GREEK_LETTER: Final = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03c9](?![\u0370-\u03ff])")
_MOST_NAMED: Final = 5
_MOST_SHOWN: Final = 20  # characters of each


def check_text(text: str, max_chars: int) -> None:
    """Raise TextError for an empty or blank text, a too long one, and lone surrogates."""
    if not text:
        raise TextError("the text is empty")
    if len(text) > max_chars:
        raise TextError(f"the text has {len(text)} characters; at most {max_chars} are allowed")
    if found := _SURROGATE.search(text):
        raise TextError(f"lone surrogate U+{ord(found[0]):04X} at character {found.start()}")
    if text.isspace():
        raise TextError("the text is blank")


def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN ")


def clean(text: str) -> str:
    """Return what `cleaned` makes of a text."""
    return cleaned(Rewritten.of(text)).text


def cleaned(
    text: Rewritten, *, reads: Callable[[str], bool] = _is_latin, intact: str = ""
) -> Rewritten:
    """Return a checked text in NFKC form, with plain quotes and dashes.

    ``reads`` tells whether a letter can be pronounced; single Greek letters can be. Others, emoji
    and control characters become spaces: `left_out` tells which. Punctuation in ``intact`` is not
    folded.
    """
    text = text.sub(_ESCAPES, "").sub(_PAGE, "\n").sub(_CONTROL, lambda match: _meant(match[0]))
    text = text.sub(EMOTICON, " ")
    if text.text.isascii():
        return text
    text = text.sub(_STARS, " stars")
    text = text.sub(_RAISED, lambda match: _power(match[0]))
    text = _folded(text.sub(_NOT_ASCII, lambda match: _expanded(match[0])))
    compatible = re.compile(rf"[^{_DIGIT_LIKE}{intact} ][{_COMPOSED}]{{0,30}}")
    text = _folded(text.sub(compatible, lambda match: unicodedata.normalize("NFKC", match[0])))
    text = text.sub(_NOT_ASCII, lambda match: _kept(match[0]))
    alone = {match.start() for match in _GREEK_LETTER.finditer(text.text)}

    def read(match: re.Match[str]) -> str:
        letter = match[0]
        foreign = letter.isalpha() and match.start() not in alone and not reads(letter)
        return _FOREIGN if foreign else letter

    text = text.sub(_NOT_ASCII, read)
    if _FOREIGN in text.text:
        characters = list(text.text)
        for match in _UNREAD.finditer(text.text):
            for at in {*range(*match.span())} - _kept_marks(match):
                characters[at] = " "
        text = replace(text, text="".join(characters))
    return text


def _kept_marks(match: re.Match[str]) -> set[int]:
    """Return the indices of what stays around letters that are not read: marks of the sentence."""
    line = match.string
    start = match.start()
    run = match[0].removesuffix(match["dash"] or "")
    if (start and not line[start - 1].isspace()) or any(one.isalnum() for one in run):
        return set()
    trailing = _TRAILING.search(run)
    assert trailing is not None  # it may be empty
    opening = list(range(len(run) - len(run.lstrip(_OPENING))))
    closing = list(range(*trailing.span()))
    for at in reversed(opening):  # a pair around them goes with them
        other = _CLOSING[_OPENING.index(run[at])]
        pair = next((place for place in closing if run[place] == other), None)
        if pair is None:
            break
        opening.remove(at)
        closing.remove(pair)
    kept = {start + at for at in (*opening, *closing)}
    if line[:start].rstrip()[-1:] in {"", *_MARKS, *"(-"}:  # no second mark after one
        return {at for at in kept if line[at] not in _MARKS}
    return kept | {*range(start + len(run), match.end())}


def left_out(text: Rewritten) -> list[str]:
    """Return what of the source of a text nothing is spoken for, in order, each but once.

    That is letters and digits of other scripts, emoji, signs without a name, and control
    characters; punctuation, layout and what is drawn do not count.
    """
    source = text.source.text
    if source.isascii() and not _CONTROL.search(source):
        return []
    silent = text.hidden | {
        at for match in EMOTICON.finditer(source) for at in range(*match.span())
    }
    found: dict[str, None] = {}
    part = ""
    at = 0
    for begin, end in [*text.spoken(), (len(source), len(source))]:
        for place in range(at, begin):
            character = source[place]
            lost = place not in silent and _means_something(character)
            if lost or (part and unicodedata.category(character) in _JOINED):
                part += character
            elif part:
                found.setdefault(part)
                part = ""
        if part:
            found.setdefault(part)
            part = ""
        at = end
    return list(found)


def _means_something(character: str) -> bool:
    """Return whether a character is more than punctuation, layout or an accent."""
    category = unicodedata.category(character)
    if character.isascii() or category == "Cc":
        return category == "Cc" and not character.isspace()
    if unicodedata.decomposition(character).startswith("<super>") or _SAMPLED.match(character):
        return False
    return category[0] in "LN" or category in {"So", "Sm", "Sc", "Cn"}


def described(parts: Sequence[str]) -> str:
    """Return a list of what is left out, each with its script or its name in Unicode."""
    more = f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    return ", ".join(map(_described, parts[:_MOST_NAMED])) + more


def _described(part: str) -> str:
    first = part[0]
    shown = part if len(part) <= _MOST_SHOWN else f"{part[:_MOST_SHOWN]}..."
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", shown)  # as a terminal obeys it
    name = unicodedata.name(first, "")
    if not name:
        return f"U+{ord(first):04X}" if unicodedata.category(first) != "Cn" else shown
    words = name.split()
    if words[:2] == ["REGIONAL", "INDICATOR"]:
        return f"{shown} (flag)"
    if first.isalpha():  # its script: the words before CAPITAL LETTER A
        until = next((n for n, word in enumerate(words) if word in _SYLLABLES), 1)
        script = " ".join(words[: max(1, until)])
        return f"{shown} ({script if script == 'CJK' else script.title()})"
    return f"{shown} ({name.lower()})"


def _meant(control: str) -> str:
    """Return what a control character stands for: of Windows-1252 read as Latin-1, a sign."""
    try:
        return bytes([ord(control)]).decode("cp1252") if 0x80 <= ord(control) <= 0x9F else " "
    except UnicodeDecodeError:
        return " "


def _power(digits: str) -> str:
    """Return a raised number, which is read as one."""
    return "^" + unicodedata.normalize("NFKC", digits).replace("−", "-")


def _folded(text: Rewritten) -> Rewritten:
    """Return a text with plain quotes and dashes."""
    return text.sub(_FOLDED, lambda match: match[0].translate(_FOLDS))


def _expanded(character: str) -> str:
    """Expand fractions and superscript digits, which NFKC would join to a preceding number."""
    kind, _, digits = unicodedata.decomposition(character).partition(" ")
    if kind == "<fraction>":
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    if kind == "<super>" and character not in "²³" and character.isdigit():
        return "^" + chr(int(digits, 16))
    return character


def _kept(character: str) -> str:
    """Return the replacement of a character: itself, a digit, a space or nothing."""
    if character.isascii() or character in SYMBOLS or character in "²³":
        return character
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in {"Cf", "Mn", "Me", "Mc"}:  # joiners, variation selectors, stray accents
        return ""
    if category in {"So", "Sk", "Cn", "No", "Nl"}:
        return " "
    return character
