"""Formulas in LaTeX, read as mathematics where they are simple, else as their words."""

# ruff: noqa: SIM905 - lists of words

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.rule import Match, any_of, rule

_SYMBOLS: Final[Mapping[str, str]] = {
    "+": "plus", "-": "minus", "=": "equals", "<": "is less than", ">": "is greater than",
    "*": "times", "/": "over", "!": "factorial", "'": "prime", "|": "", "&": "", "~": "",
    "%": "percent", "le": "is at most", "leq": "is at most", "leqslant": "is at most",
    "ge": "is at least", "geq": "is at least", "geqslant": "is at least",
    "lt": "is less than", "gt": "is greater than", "ll": "is much less than",
    "gg": "is much greater than", "ne": "is not equal to", "neq": "is not equal to",
    "equiv": "is equivalent to", "approx": "approximately equals", "sim": "is similar to",
    "simeq": "approximately equals", "cong": "is congruent to", "propto": "is proportional to",
    "times": "times", "cdot": "times", "ast": "times", "div": "divided by", "pm": "plus or minus",
    "mp": "minus or plus", "circ": "degrees", "degree": "degrees", "to": "to", "mapsto": "maps to",
    "rightarrow": "to", "longrightarrow": "to", "leftarrow": "from", "Rightarrow": "implies",
    "implies": "implies", "Leftrightarrow": "if and only if", "iff": "if and only if",
    "leftrightarrow": "if and only if", "therefore": "therefore", "because": "because",
    "in": "in", "notin": "not in", "subset": "is a subset of", "subseteq": "is a subset of",
    "supset": "is a superset of", "cup": "union", "cap": "intersection", "setminus": "minus",
    "emptyset": "the empty set", "varnothing": "the empty set", "forall": "for all",
    "exists": "there exists", "land": "and", "wedge": "and", "lor": "or", "vee": "or",
    "neg": "not", "lnot": "not", "infty": "infinity", "partial": "partial", "nabla": "del",
    "prime": "prime", "ldots": "and so on", "dots": "and so on", "cdots": "and so on",
    "mid": "given", "perp": "is perpendicular to", "parallel": "is parallel to", "angle": "angle",
    "hbar": "h bar", "ell": "l", "Re": "the real part of", "Im": "the imaginary part of",
    "sin": "sine", "cos": "cosine", "tan": "tangent", "sec": "secant", "csc": "cosecant",
    "cot": "cotangent", "sinh": "hyperbolic sine", "cosh": "hyperbolic cosine",
    "tanh": "hyperbolic tangent", "arcsin": "arc sine", "arccos": "arc cosine",
    "arctan": "arc tangent", "ln": "natural log", "log": "log", "exp": "exp", "min": "min",
    "max": "max", "det": "determinant", "gcd": "G C D", "bmod": "mod", "mod": "mod",
    "sum": "the sum", "prod": "the product", "int": "the integral", "iint": "the double integral",
    "oint": "the contour integral", "lim": "the limit", "sup": "supremum", "inf": "infimum",
    "quad": "", "qquad": "", "left": "", "right": "", "big": "", "Big": "", "bigl": "", "bigr": "",
    "Bigl": "", "Bigr": "", "limits": "", "displaystyle": "", "textstyle": "", "nonumber": "",
    "lfloor": "the floor of", "rfloor": "", "lceil": "the ceiling of", "rceil": "", "hline": "",
    "langle": "", "rangle": "", "lvert": "", "rvert": "", "Vert": "", "vert": "", "colon": "",
}  # fmt: skip
_GREEK: Final = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma"
    " tau upsilon phi chi psi omega"
).split()
_LARGE: Final = frozenset({"sum", "prod", "int", "iint", "oint", "lim", "bigcup", "bigcap"})
_ACCENTS: Final = {"hat": "hat", "widehat": "hat", "bar": "bar", "overline": "bar", "dot": "dot",
                   "tilde": "tilde", "widetilde": "tilde", "ddot": "double dot"}  # fmt: skip
_WORDS: Final = frozenset({
    "text", "textbf", "textit", "textrm", "texttt", "mbox", "operatorname", "emph",
})  # fmt: skip
_FONTS: Final = frozenset({
    "mathrm", "mathbf", "mathbb", "mathcal", "mathit", "mathsf", "boldsymbol", "bm", "boxed",
    "underline", "mathfrak", "vec", "overrightarrow", "cancel",
})  # fmt: skip
_DROPPED: Final = frozenset({"begin", "end", "label", "tag", "color", "hspace", "vspace"})
_DEEPEST: Final = 12

_TOKEN: Final = re.compile(r"\\[A-Za-z]+\*?|\\.|\d+(?:[.,]\d+)*|[A-Za-z]|\s+|.", re.DOTALL)


class _Formula:
    """The tokens of a formula, read from left to right."""

    def __init__(self, written: str) -> None:
        self._tokens = [one for one in _TOKEN.findall(written) if not one.isspace()]
        self._written = written
        self._at = 0

    def words(self) -> str:
        """Return what is said for all of it."""
        words = " ".join(" ".join(self._until("", 0)).split())
        return words.replace("( ", "(").replace(" )", ")").replace(" ,", ",")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _until(self, closer: str, depth: int) -> Iterator[str]:
        """Yield the words up to a closing mark."""
        before = ""
        while token := self._peek():
            self._at += 1
            if token == closer:
                return
            yield from self._term(token, before, depth)
            before = token

    def _term(self, token: str, before: str, depth: int) -> Iterator[str]:
        """Yield the words of one thing."""
        if token == "{" and depth < _DEEPEST:
            yield from self._until("}", depth + 1)
        elif token in {"{", "}"}:
            return
        elif token == "^":
            yield self._power(self._argument(depth))
        elif token == "_":
            yield f"sub {self._argument(depth)}"
        elif token.startswith("\\"):
            yield from self._command(token[1:].rstrip("*"), depth)
        elif token[0].isdigit():
            yield say.decimal(token) if re.fullmatch(r"[\d,]+(\.\d+)?", token) else token
        elif token == "(" and before in {"f", "g", "h", "P", "F"}:
            yield "of ("
        elif token in "aA":
            yield "eh"
        else:
            yield _SYMBOLS.get(token, token)

    def _argument(self, depth: int) -> str:
        """Return the words of the next group, or of one token."""
        token = self._next()
        if not token or depth >= _DEEPEST:
            return ""
        return " ".join(" ".join(self._term(token, "", depth + 1)).split())

    def _raw(self) -> str:
        """Return the next group as it is written, for words and numbers."""
        if self._peek() != "{":
            return self._next()
        self._at += 1
        parts: list[str] = []
        while (token := self._next()) not in {"", "}"}:
            parts.append(token)
        return "".join(parts)

    def _command(self, name: str, depth: int) -> Iterator[str]:
        if name in {"frac", "dfrac", "tfrac", "cfrac"}:
            yield self._fraction(depth)
        elif name == "sqrt":
            yield self._root(depth)
        elif name in {"binom", "dbinom"}:
            yield f"{self._argument(depth)} choose {self._argument(depth)}"
        elif name in _LARGE:
            yield from self._large(name, depth)
        elif name in _ACCENTS:
            yield f"{self._argument(depth)} {_ACCENTS[name]}"
        elif name in _WORDS:
            yield self._text()
        elif name in _FONTS:
            yield f"{'vector ' if name in {'vec', 'overrightarrow'} else ''}{self._argument(depth)}"
        elif name in _DROPPED:
            self._raw()
        elif name.lower().removeprefix("var") in _GREEK:
            yield name.lower().removeprefix("var")
        elif name in _SYMBOLS:
            yield _SYMBOLS[name]
        elif name == "\\":
            yield ","
        elif name in "{}":
            return
        elif len(name) > 1:
            yield name
        elif name in "$#%&_":
            yield {"%": "percent", "&": "and", "$": "dollars"}.get(name, "")

    def _text(self) -> str:
        """Return words, which the tokens have lost the spaces of, as they are written."""
        if self._peek() != "{":
            return self._next()
        start = sum(1 for one in self._tokens[: self._at] if one == "{")
        self._raw()
        begins = [match.end() for match in re.finditer(r"(?<!\\)\{", self._written)]
        if start >= len(begins):
            return ""
        begin = begins[start]
        end = self._written.find("}", begin)
        return self._written[begin : end if end >= 0 else len(self._written)]

    def _fraction(self, depth: int) -> str:
        marked = self._at
        above = self._raw()
        below = self._raw()
        if above.isdecimal() and below.isdecimal() and int(below) > 1 and len(above + below) < 6:
            return say.fraction(above, below)
        self._at = marked
        return f"{self._argument(depth)} over {self._argument(depth)}"

    def _root(self, depth: int) -> str:
        if self._peek() != "[":
            return f"the square root of {self._argument(depth)}"
        self._at += 1
        order = " ".join(self._until("]", depth + 1))
        name = {"three": "cube", "two": "square", "four": "fourth"}.get(order, f"{order}-th")
        return f"the {name} root of {self._argument(depth)}"

    def _large(self, name: str, depth: int) -> Iterator[str]:
        """Yield a sum and the like with its limits."""
        yield _SYMBOLS.get(
            name, {"bigcup": "the union", "bigcap": "the intersection"}.get(name, "")
        )
        while self._peek() in {"_", "^", "\\limits"}:
            token = self._next()
            if token == "_":
                lower = self._argument(depth)
                if name == "lim":
                    yield f"as {re.sub(r' to ', ' approaches ', lower, count=1)}"
                else:
                    begins = self._peek() == "^" or "equals" in lower
                    yield f"{'from' if begins else 'over'} {lower}"
            elif token == "^":
                yield f"to {self._argument(depth)}"
        yield "of"

    @staticmethod
    def _power(exponent: str) -> str:
        return {
            "two": "squared", "three": "cubed", "degrees": "degrees", "prime": "prime",
            "times": "star", "T": "transpose", "top": "transpose",
        }.get(exponent, f"to the power of {exponent}")  # fmt: skip


def formula(written: str) -> str:
    """Return what is said for a formula in LaTeX, without its delimiters."""
    written = re.sub(r"(?<=\d)\{,\}(?=\d{3})", ",", written)
    return _Formula(re.sub(r"\\\$([\d.,]*\d)", r"\1\\text{ dollars}", written)).words()


def _display(match: Match) -> str:
    written = next(one for one in match.groups() if one is not None)
    return formula(written) if match[0].startswith("\\(") else f" {formula(written)} "


def _inline(match: Match) -> str:
    """Tell a formula from two prices: it has a command, an operator or letters alone."""
    written = match[1]
    if re.search(r"[A-Za-z]{3,}\s+[A-Za-z]{2,}", re.sub(r"\\[a-z]+(\{[^{}]*\})?", "", written)):
        return match[0]
    if re.fullmatch(r"\\[$#]\d(?:[\d.,]|\{,\})*|[\d.,]+\\%", written):
        return re.sub(r"[\\{}]", "", written)  # a price, a number or a share
    if not re.search(r"\\[A-Za-z]|[\^_=<>+]", written) and not _SHORT.fullmatch(written):
        return match[0]
    return formula(written)


_SHORT: Final = re.compile(
    r"-?(?:\d+(?:[.,/]\d+)*|[\d\s(),.|!'/*-]*[A-Za-z](?:[\d\s(),.|!'/*-]|[A-Za-z](?![a-z]{2}))*)"
)
_KNOWN: Final = any_of({
    *_GREEK,
    *(one for one in _SYMBOLS if len(one) > 2),
    "frac",
    "dfrac",
    "sqrt",
    "binom",
    "leq",
})
_TEXTS: Final = (
    "textbf|textit|textsc|texttt|textrm|emph|underline|text|footnote|caption|title|author"
)
_SECTIONS: Final = "part|chapter|section|subsection|subsubsection|paragraph"

LATEX: Final[tuple[tuple[re.Pattern[str], str | Callable[[Match], str]], ...]] = (
    rule(
        r"\$\$([^$]{1,1000}?)\$\$|\\\[((?:(?!\\\]).){1,1000}+)\\\]|\\\(((?:(?!\\\)).){1,400}+)\\\)"
        r"|\\begin\{(?:equation|align|gather|multline|math)\*?\}(.{1,1000}?)"
        r"\\end\{(?:equation|align|gather|multline|math)\*?\}",
        _display,
        re.DOTALL,
    ),
    rule(r"(?<![\w$\\])\$((?![\s$])(?:\\.|[^$\\\n]){1,300}+(?<!\s))\$(?![\w$])", _inline),
    rule(rf"\\(?:{_SECTIONS})\*?\{{([^{{}}\n]*)\}}", r"\n\n\1\n\n"),
    rule(rf"\\(?:{_TEXTS})\{{([^{{}}\n]*)\}}", r"\1"),
    rule(r"[~ ]?\\(?:cite[a-z]*|ref|eqref|cref|label|pageref)\*?(?:\[[^\[\]]*\])?\{[^{}\n]*\}", ""),
    rule(r"\\(?:begin|end)\{[^{}\n]*\}(?:\[[^\[\]\n]*\])?", "\n\n"),
    rule(r"(?<![\w:\\])\\item\b(?:\[[^\[\]\n]*\])?", "\n\n"),
    rule(r"(?<![\w:\\])\\((?:La)?TeX)\b(?:\{\})?", r"\1"),
    rule(
        rf"(?<![\w:\\])\\(?:{_KNOWN})(?![A-Za-z])(?:\{{[^{{}}\n]{{0,200}}\}}){{0,2}}",
        lambda match: f" {formula(match[0])} ",
    ),
    rule(r"\\([-*_#`~>|{}$&%!.+\"])", r"\1"),
    rule(r"\\\\", " "),
)
