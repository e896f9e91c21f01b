"""The part of SSML that is spoken, rewritten to our own markup as a text arrives.

W3C, Speech Synthesis Markup Language 1.1: `break`, `sub`, `phoneme` in IPA, `say-as` for characters
and dates, `prosody` with a rate; `speak`, `p` and `s` have nothing to say. What cannot be
rewritten is left as it is, and `refuse` then names it; tags of HTML are none of ours and are
dropped later, as in any text.
"""

import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Final

from models.text.errors import TextError
from models.text.markup import MAX_RATE, MIN_RATE
from models.text.normalise.vocabulary import MONTHS

_PATIENCE_CHARS: Final = 1000
"""For how long the end of a tag or element is waited for."""

_NAMES: Final = (
    "audio|break|desc|emphasis|lang|lexicon|lookup|mark|meta|metadata|paragraph|phoneme|prosody"
    "|say-as|sentence|token|voice|w|[A-Za-z]+:[A-Za-z-]+"
)
_TAG: Final = re.compile(rf"</?(?P<name>{_NAMES}|sub(?=[^<>]*\salias))(?=[\s/>])[^<>]*>", re.I)
_WRAPPER: Final = re.compile(r"<\?xml[^<>]*>|</?speak(?:\s[^<>]*)?>", re.IGNORECASE)
_ELEMENT: Final = re.compile(
    r"<(?P<empty>break)(?P<options>(?:\s[^<>]{0,400}?)?)\s*(?:/>|>\s*</break\s*>)"
    r"|<(?P<name>sub|phoneme|say-as)(?P<attributes>\s[^<>]{0,400}?)"
    r"(?:\s*/>|>(?P<content>[^<>]{0,400})</(?P=name)\s*>)"
    r"|<(?P<opens>prosody)(?P<prosody>\s[^<>]{0,400})>|(?P<closes></prosody\s*>)",
    re.IGNORECASE,
)
# A tag that another begins in, or that the text ends in.
_BROKEN: Final = re.compile(
    r"</?(?P<name>break|prosody|phoneme|say-as|sub|emphasis|speak|voice|audio)(?=[\s/])[^<>]*(?=<|\Z)",
    re.IGNORECASE,
)
_ATTRIBUTE: Final = re.compile(r"""([A-Za-z:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_OPEN_TAG: Final = re.compile(r"<(?:[A-Za-z/?][^<>]*)?$")
_OPENING: Final = re.compile(
    r"<(?P<name>sub|phoneme|say-as|break)(?=[\s>])[^<>]*(?<!/)>[^<>]*(?:</?[A-Za-z-]*)?$",
    re.IGNORECASE,
)
_HINTS: Final[Mapping[str, str]] = {
    "break": 'write <break time="500ms"/> or a strength',
    "phoneme": 'write <phoneme alphabet="ipa" ph="...">word</phoneme>',
    "prosody": 'write <prosody rate="80%">...</prosody>, from 25% to 400%, +20%, x-slow, slow,'
    " medium, fast, x-fast or default",
    "say-as": "interpret-as may be characters, spell-out or date, with a valid content",
    "sub": 'write <sub alias="words">abbreviation</sub>',
    "voice": "write [voice:NAME]",
}
_STRENGTHS: Final = {
    "none": None,
    "x-weak": "100ms",
    "weak": "250ms",
    "medium": "500ms",
    "strong": "1s",
    "x-strong": "2s",
}
_RATES: Final = {
    "x-slow": 0.5,
    "slow": 0.75,
    "medium": 1.0,
    "default": 1.0,
    "fast": 1.25,
    "x-fast": 1.5,
}
"""SSML asks that they increase, no more."""

_PERCENTAGE: Final = re.compile(r"(?P<sign>[+-]?)(?P<number>\d{1,4}(?:\.\d{1,4})?)%")
_TIME: Final = re.compile(r"\+?(\d{1,6}(?:\.\d{1,6})?|\.\d{1,6})(ms|s)", re.IGNORECASE)
_AMPERSAND: Final = r"(?:amp|\#0{0,4}38|\#[xX]0{0,4}26);"
# Of what was written as an entity twice, the character is meant.
_ENTITY: Final = re.compile(
    rf"&(?:{_AMPERSAND})*+(?P<name>\#[0-9]{{1,8}};|\#[xX][0-9a-fA-F]{{1,7}};|[A-Za-z][A-Za-z0-9]{{1,31}};)"
    rf"|&(?:{_AMPERSAND})++"
)
_OPEN_ENTITY: Final = re.compile(rf"&(?:{_AMPERSAND})*+#?[A-Za-z0-9]{{0,32}}\Z")
_COMPARED: Final = {"<": " less than ", ">": " greater than "}  # could begin a tag as characters
_MONTHS: Final = tuple(dict.fromkeys(MONTHS))


class SsmlRewriter:
    """Rewrites a text that arrives in packets; the result does not depend on how it is divided."""

    def __init__(self) -> None:
        self._held = ""
        self._rates = [1.0]  # of the elements around the next character

    def push(self, packet: str) -> str:
        """Return the text that is complete with a packet, rewritten."""
        text = self._held + packet
        place = len(text)
        for pattern in (_OPEN_TAG, _OPENING):
            near = max(0, len(text) - _PATIENCE_CHARS)
            found = pattern.search(text, near)
            place = min(place, found.start() if found else place)
        entity = _OPEN_ENTITY.search(text[:place], max(0, place - 64))
        place = entity.start() if entity else place
        self._held = text[place:]
        return self._rewritten(text[:place])

    def end(self) -> str:
        """Return the rest, rewritten."""
        text = self._held
        self._held = ""
        return self._rewritten(text)

    def _rewritten(self, text: str) -> str:
        if "<" in text:
            text = _ELEMENT.sub(self._element, _WRAPPER.sub("", text))
        if "&" in text:
            text = _ENTITY.sub(_character, text)
        return text

    def _element(self, match: re.Match[str]) -> str:
        if match["opens"]:
            rate = _rate(match["prosody"].removesuffix("/"), self._rates[-1])
            if rate is None:
                return match[0]
            if match["prosody"].endswith("/"):
                return ""  # of nothing
            self._rates.append(rate)
        elif match["closes"]:
            if len(self._rates) == 1:
                return match[0]
            self._rates.pop()
        else:
            return _rewritten(match)
        # A sentence that ends before the tag ends before a space, too.
        return f" [rate:{self._rates[-1]:g}]"


def refuse(text: str) -> None:
    """Raise TextError for SSML that is not supported, naming it and what to write.

    To be called with what `SsmlRewriter` made of the text.
    """
    if (broken := _BROKEN.search(text)) is not None:
        raise TextError(f"{broken[0].strip()[:80]!r}: <{broken['name']}> is not closed by >")
    if (tag := _TAG.search(text)) is not None:
        name = tag["name"].lower()
        hint = _HINTS.get(name, "remove it")
        more = [one for one in _attributes(tag[0]) if one != "rate"] if name == "prosody" else []
        if more:
            hint = f"its {' and '.join(more)} cannot be set; {hint}"
        raise TextError(f"{tag[0][:80]!r}: <{name}> is not supported so; {hint}")


def _character(match: re.Match[str]) -> str:
    """Return the character of an entity, which is not known by all names; else what is written."""
    if not match["name"]:
        return "&"
    found = unescape(f"&{match['name']}")
    if found.endswith(";") and found.startswith("&"):
        return match[0]
    return "".join(_COMPARED.get(one, one) for one in found if one >= " " or one in "\t\n")


def _rewritten(match: re.Match[str]) -> str:
    written = match["attributes"] or match["options"] or ""
    if _ATTRIBUTE.sub("", written).strip():
        return match[0]  # what is no attribute
    attributes = _attributes(written)
    kind = (match["empty"] or match["name"]).lower()
    found = _REWRITES[kind](attributes, match["content"] or "")
    return match[0] if found is None else found


def _attributes(written: str) -> dict[str, str]:
    return {
        name.lower(): unescape(double or single)
        for name, double, single in _ATTRIBUTE.findall(written)
    }


def _rate(written: str, around: float) -> float | None:
    """Return the rate of a prosody element, given that around it; None if it is not supported."""
    attributes = _attributes(written)
    if list(attributes) != ["rate"] or _ATTRIBUTE.sub("", written).strip():
        return None
    value = attributes["rate"].strip().lower()
    rate = _RATES.get(value)
    if (percentage := _PERCENTAGE.fullmatch(value)) is not None:
        share = float(percentage["number"]) / 100
        signs = {"": share, "+": around * (1 + share), "-": around * (1 - share)}
        rate = round(signs[percentage["sign"]], 4)
    return rate if rate is not None and MIN_RATE <= rate <= MAX_RATE else None


def _break(attributes: Mapping[str, str], _: str) -> str | None:
    if "time" in attributes:
        time = _TIME.fullmatch(attributes["time"].strip())
        return time and f"[pause:{'0' * time[1].startswith('.')}{time[1]}{time[2].lower()}]"
    strength = attributes.get("strength", "medium").strip().lower()
    if strength not in _STRENGTHS:
        return None
    pause = _STRENGTHS[strength]
    return "" if pause is None else f"[pause:{pause}]"


def _sub(attributes: Mapping[str, str], _: str) -> str | None:
    alias = attributes.get("alias", "").strip()
    return alias if alias and "<" not in alias else None


def _phoneme(attributes: Mapping[str, str], _: str) -> str | None:
    ipa = attributes.get("ph", "").strip()
    if attributes.get("alphabet", "ipa").lower() != "ipa" or not ipa or set(ipa) & set("[]<>"):
        return None
    return f"[[{ipa}]]"


def _say_as(attributes: Mapping[str, str], content: str) -> str | None:
    kind = attributes.get("interpret-as", "").strip().lower()
    if kind in {"characters", "spell-out"}:
        signs = [sign.upper() for sign in unescape(content) if sign.isalnum()]
        return " ".join(signs) or None
    if kind == "date":
        return _date(content, attributes.get("format", "").strip().lower())
    return None


def _date(content: str, order: str) -> str | None:
    """Return a date in the words that are read as one: October 5, 2026."""
    numbers = re.split(r"[-/.\s]+", content.strip())
    if not order:
        order = "ymd" if len(numbers[0]) == 4 else "mdy"[: len(numbers)]
    if len(order) != len(numbers) or len(set(order)) != len(order) or not set(order) <= set("ymd"):
        return None
    if not all(one.isascii() and one.isdigit() for one in numbers):
        return None
    parts = dict(zip(order, map(int, numbers), strict=True))
    month, day, year = (parts.get(part) for part in "mdy")
    if (month is not None and not 1 <= month <= 12) or (day is not None and not 1 <= day <= 31):
        return None
    if month is None:
        return str(year) if order == "y" else None
    words = _MONTHS[month - 1]
    words += f" {day}" if day is not None else ""
    if year is None:
        return words
    return f"{words}, {year}" if day is not None else f"{words} {year}"


_REWRITES: Final[Mapping[str, Callable[[Mapping[str, str], str], str | None]]] = {
    "break": _break,
    "sub": _sub,
    "phoneme": _phoneme,
    "say-as": _say_as,
}
