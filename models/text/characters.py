"""Character checks and folding: length, control characters, scripts, Unicode variants."""

# ruff: noqa: RUF001 - quotes and dashes of every kind, to be told apart

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from models.text.errors import TextError
from models.text.normalise.vocabulary import SYMBOLS
from models.text.source import Rewritten

INLINE: Final = "\ue000-\uf8ff"
"""The Private Use Area as a regex range: `markup` puts inline phonemes there."""

_REFUSED: Final = re.compile("(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])|[\ud800-\udfff]")
_FOLDS: Final = str.maketrans({
    **dict.fromkeys("‘’‚‛ʼʻ′´", "'"),
    **dict.fromkeys("“”„‟″", '"'),
    **dict.fromkeys("‐‑‒−", "-"),
    **dict.fromkeys("\u2028\u2029", "\n"),
    "…": "...",
})
_FOLDED: Final = re.compile(f"[{''.join(map(chr, _FOLDS))}]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_DIGIT_LIKE: Final = "²³°"  # NFKC would turn these into digits
# What NFKC may join to the character before it: accents, and the later parts of a Korean syllable.
_COMPOSED: Final = (
    "\u0300-\u036f\u1160-\u11ff\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
    "\uff9e-\uffdc"
)
_GREEK_LETTER: Final = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03c9](?![\u0370-\u03ff])")
_MOST_NAMED: Final = 5


def check(text: str, max_chars: int) -> None:
    """Raise TextError for what is invalid in any language.

    That is an empty or blank text, a too long one, control characters and surrogates.
    """
    if not text:
        raise TextError("the text is empty")
    if len(text) > max_chars:
        raise TextError(f"the text has {len(text)} characters; at most {max_chars} are allowed")
    if found := _REFUSED.search(text):
        kind = "control character" if found["control"] else "lone surrogate"
        raise TextError(f"{kind} U+{ord(found[0]):04X} at character {found.start()}")
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
    """Return a checked text in NFKC form, with plain quotes and dashes and without emoji.

    ``reads`` tells whether a letter can be pronounced; punctuation in ``intact`` is not folded.
    Raises TextError for letters that cannot be pronounced; single Greek letters are allowed.
    """
    if text.text.isascii():
        return text
    text = _folded(text.sub(_NOT_ASCII, lambda match: _expanded(match[0])))
    compatible = re.compile(rf"[^{_DIGIT_LIKE}{intact} ][{_COMPOSED}]{{0,30}}")
    text = _folded(text.sub(compatible, lambda match: unicodedata.normalize("NFKC", match[0])))
    text = text.sub(_NOT_ASCII, lambda match: _kept(match[0]))
    alone = {match.start() for match in _GREEK_LETTER.finditer(text.text)}
    foreign = dict.fromkeys(
        letter
        for place, letter in enumerate(text.text)
        if letter.isalpha() and place not in alone and not reads(letter)
    )
    if foreign:
        names = [f"{letter!r} ({unicodedata.name(letter, 'unnamed')})" for letter in foreign]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        raise TextError(
            f"no voice reads {', '.join(names[:_MOST_NAMED])}{more}: write it in the letters of the"
            " model's language, or load a model of this one (docs/public-checkpoints.md)"
        )
    return text


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
