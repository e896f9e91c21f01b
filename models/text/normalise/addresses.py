"""Rules for e-mail addresses, URLs, bare domains, @names and #tags."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.rule import Match, any_of, rule
from models.text.normalise.vocabulary import ADDRESS_MARKS, SPELLED_DOMAINS, SPOKEN_DOMAINS

_DOMAIN: Final = rf"(?:[A-Za-z0-9-]+\.)+(?:{any_of(SPELLED_DOMAINS | SPOKEN_DOMAINS)})\b"
# An address is only tried at its first letter, so matching is linear in a word's length.
_FIRST: Final = r"(?:(?<![\w.@-])|(?<=[^\WA-Za-z0-9]-))"
_CLOSING: Final = ".,;:!?)'\"]*_"
_PART: Final = re.compile(r"[^\W\d_]+|\d+|[^\w]|_")


def _address(match: Match) -> str:
    address = match["address"].rstrip(_CLOSING)
    spoken: list[str] = []
    for part in _PART.findall(address):
        if part.isdecimal():  # not "²", which `int` does not take
            spoken.append(say.cardinal(part) if len(part) < 4 else say.digits(part))
        elif part in SPELLED_DOMAINS and spoken[-1:] == ["dot"]:
            spoken.append(say.letters(part))
        elif part.lower() == "www":
            spoken.append("W W W")
        else:
            spoken.append(part if part.isalpha() else ADDRESS_MARKS.get(part, ""))
    return " ".join(filter(None, spoken)) + match["address"][len(address) :]


def _handle(match: Match) -> str:
    return f"{'hashtag' if match[1] == '#' else 'at'} {match[2].replace('_', ' ')}"


RULES: Final = (
    rule(
        r"(?<![\w.+-])(?P<marks>[.+-]*+)(?:mailto:)?"
        r"(?P<address>\w[\w.+-]*+@[\w-]+(?:\.[\w-]+)+)",
        lambda match: match["marks"] + _address(match),
    ),
    rule(r"\b(?:https?|ftp)://(?P<address>[^\s<>\ue000-\uf8ff]+)", _address, re.IGNORECASE),
    rule(r"\b(?P<address>www\.[^\s<>\ue000-\uf8ff]+)", _address, re.IGNORECASE),
    rule(rf"{_FIRST}(?P<address>{_DOMAIN}(?:[/:][^\s<>\ue000-\uf8ff]*)?)", _address),
    # The musical sharp, and languages named after it: C#, F#m7
    rule(
        r"(?<![\w#/.])([A-GJa-g])#(?=(?:m|maj|min|dim|sus|aug)?\d{0,2}(?!\w))",
        lambda match: f"{say.letters(match[1])} sharp ",
    ),
    rule(r"(?<= sharp )m(?=\d|\b(?!'))", "minor "),
    rule(
        r"(?<!\w)#((?=\d*[A-F])[A-F\d]{6}|(?=\d*[a-f])(?=[a-f]*\d)[a-f\d]{6}"
        r"|(?=\d*[A-F])[A-F\d]{3})(?!\w)",
        lambda match: f"hash {say.characters(match[1])}",  # a colour
    ),
    rule(r"\s?#(?=\d|[A-Z]{1,4}-?\d)", " number "),
    rule(r"(?<![\w&])([@#])([^\W\d]\w*)", _handle),
)
