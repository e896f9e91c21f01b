"""Rules for notations of mathematics and computing: operators, powers, paths, ports, codes."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.rule import NUMBER, Match, rule

_OPERATORS: Final = {
    "<->": "to and from", "<=>": "if and only if", "->": "to", "=>": "to", "-->": "to",
    "==>": "to", "<-": "from", "!=": "is not equal to", "!==": "is not equal to",
    "==": "equals", "===": "equals", "<=": "is at most", ">=": "is at least",
    "+=": "plus equals", "-=": "minus equals", "&&": "and", "||": "or", ":=": "equals",
}  # fmt: skip
_COMPARED: Final = (  # words before a number that something is less than
    "is|are|be|was|were|if|when|of|with|for|at|and|or|than|to|only|size|score|value|count|level|age"
)
_EXTENSIONS: Final = (
    "txt|pdf|jsx?|tsx?|py|md|csv|json|html?|css|exe|zip|png|jpe?g|gif|svg|env|ya?ml|toml|xml|ini|cfg"
    "|log|docx?|xlsx?|pptx?|mp[34]|wav|epub|tar|gz|cpp|rs|rb|kt|php|lua|java|ipynb|sql|bak|tmp|dll"
)
_TERM: Final = rf"\(?-?{NUMBER}%?\)?"
_SUM: Final = rf"{_TERM}(?:\s?[-+*/\u00d7\u00f7xX]\s?{_TERM}){{0,20}}+"
_SIGNS: Final = {
    "-": "minus", "+": "plus", "*": "times", "x": "times", "X": "times", "\u00d7": "times",
    "\u00f7": "divided by", "/": "divided by",
}  # fmt: skip
_STEP: Final = re.compile(rf"(?<=[\d)%])\s?([-+*/\u00d7\u00f7xX])\s?(?=\(?-?{NUMBER})")
_QUOTIENT: Final = re.compile(r"(?<!\d)(\d{1,15})/(\d{1,15})(?!\d)")
_INNER_DASH: Final = re.compile(r"(?<=\d)-(?=\d)")
_PLAIN: Final = str.maketrans({"\u00b2": "2", "\u00b3": "3", "^": ""})


def _operator(match: Match) -> str:
    return f" {_OPERATORS[match[1]]} "


def _equation(match: Match) -> str:
    """Write the operators of an equation of numbers out; proper fractions stay."""

    def step(one: Match) -> str:
        quotient = _QUOTIENT.search(one.string, *_around(one))
        if one[1] == "/" and quotient and int(quotient[1]) < int(quotient[2]):
            return "/"
        return f" {_SIGNS[one[1]]} "

    return _STEP.sub(step, match[0])


def _around(match: Match) -> tuple[int, int]:
    """Return where the digits beside a match begin and end."""
    text = match.string
    begin = match.start()
    end = match.end()
    while begin and text[begin - 1].isdecimal():
        begin -= 1
    while end < len(text) and text[end].isdecimal():
        end += 1
    return begin, end


def _scientific(match: Match) -> str:
    sign = {"-": "minus ", "+": ""}.get(match[2], "")
    return f"{match[1]} times 10 to the power of {sign}{match[3]}"


def _hexadecimal(match: Match) -> str:
    return f"zero {match[1].upper()} {say.characters(match[2])}"


def _port(match: Match) -> str:
    port = match["port"]
    return f"{match['host']} colon {say.cardinal(port) if len(port) < 4 else say.digits(port)}"


RULES: Final = (
    # Not "2x" as in "2x faster": the unknown of an equation.
    rule(
        rf"(?<![\w.])({NUMBER})([xyz])(?=\s?(?:[=^\u00b2\u00b3]|!=)|\s?[-+*/<>]\s?[\d(])", r"\1 \2"
    ),
    rule(rf"(?<![\w./-]){_SUM}(?:\s?=\s?{_SUM}){{1,9}}", _equation),
    rule(
        r"(?<![<>=!&|:+-])(<->|<=>|-{1,2}>|={1,2}>|!==?|={2,3}|[<>:+-]=|&&|\|\|)(?![<>=&|])",
        _operator,
    ),
    rule(r"(?<=\w)\s<-\s(?=\w)", " from "),
    rule(  # a heart, but no number that something is less than
        rf"\b(?!(?:{_COMPARED})\b)([A-Za-z]{{2,}}|I) <3(?=[!?,;)]|\.?(?:\s*$|\n)"
        r"|\s(?:you|u|my|this|that|it|him|her|them|the|your|all)\b)",
        r"\1",
    ),
    rule(r"(?<=[\w),])\s?<\s?(?=-?\d)|(?<!\S)<\s?(?=-?\d)", " less than "),
    rule(r"(?<=[\w),])\s?>\s?(?=-?\d)", " greater than "),
    rule(r"(?<![\w~/])~(?=/)", "tilde "),
    rule(r"(?<![\w.])\.(?=/\w)", "dot "),
    rule(
        rf"(?<!\S)\.(?=(?:[A-Z]{{2,5}}|{_EXTENSIONS})\b)|(?<=[\w)\]])\.(?=(?:{_EXTENSIONS})\b)",
        " dot ",
    ),
    rule(r"\b([A-Z]):(?=\\)", r"\1 colon "),
    # Powers: superscripts are one number, and a sign belongs to it.
    rule(
        r"(?<=[\w)])-?(?:\^\d|[\u00b2\u00b3]){2,}|(?<=[\w)])-(?:\^\d|[\u00b2\u00b3])",
        lambda match: "^" + match[0].translate(_PLAIN),
    ),
    rule(rf"(?<![\w.,:/])({NUMBER})[eE]([+-]?)(\d{{1,3}})(?![\w.-])", _scientific),
    rule(r"(?<=\d)\s?[xX*\u00d7\u00b7]\s?(?=10\s?\^)", " times "),
    rule(r"(?<=[\w)])\s?\^\s?\+?(?=-?\d)", " to the power of "),
    # Codes
    rule(r"(?<!\w)0([xXb])([0-9A-Fa-f]{1,64})(?!\w)", _hexadecimal),
    rule(r"(?<![\w.-])[A-Za-z]\w*(?:-\w+)+", lambda match: _INNER_DASH.sub(" ", match[0])),
    rule(
        r"(?<![\w.])(?P<host>\d{1,3}(?:\.\d{1,3}){3}|localhost):(?P<port>\d{1,5})(?![\d.])", _port
    ),
    rule(  # Ca(OH)2, (NH4)2SO4
        r"(?<=[A-Za-z\d])\(([A-Z][A-Za-z\d]{0,7})\)(?=\d(?!\d))"
        r"|(?<!\w)\(([A-Z][A-Za-z\d]{0,7})\)(?=\d[A-Z])",
        lambda match: f" {match[1] or match[2]} ",
    ),
    # A standard and its year: ISO 9001:2015
    rule(r"(?<![\d.,:])(\d{3,}(?:-\d+)?):(?=(?:19|20)\d\d(?![\d:]))", r"\1, "),
)
