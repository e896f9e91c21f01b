"""Faces that are made of characters, which nobody reads out: :-) (╯°□°)╯ ^_^ <3."""

# ruff: noqa: RUF001 - eyes and mouths of several scripts

import re
from typing import Final

# Two eyes are alike, and what is between them is no word. Marks of a text are no eyes.
_EYE: Final = r"[^\w\s()\x00-\x7f“”„‘’‚…–—·]"
_ARM: Final = r"[^\w\s\x00-\x7f“”„‘’‚…–—«»]|[\\/~](?=[(\s]|$)"
_ROUND: Final = (
    rf"[(（ʕ][^\w\n()]{{0,3}}(?P<eye>{_EYE})[^()\nA-Za-z0-9]{{0,5}}(?P=eye)[^\w\n()]{{0,3}}[)）ʔ]"
    r"|\(\S{0,2}(?P<letters>[ಠಥ])[^\s()]{1,3}(?P=letters)\S{0,2}\)"
    r"|ʕ[^\s\w]{1,4}[^\sA-Za-z0-9][^\s\w]{1,4}ʔ"
    r"|\([=*]?(?P<plain>[;>=@-])[_.oOwv]{1,3}(?P=plain)[=*;]?\)"
    r"|\([=*]?\^[_.oOwv-]{0,3}\^[=*;]?\)"
    r"|\((?P<letter>[TtOoUuXxQq])_{1,3}(?P=letter)\)"
    r"|\([>≧≥][_.▽]{1,3}[<≦≤]\)"
)
_FACE: Final = (
    rf"(?:{_ARM}){{0,4}}(?:{_ROUND})(?:{_ARM}|[︵ノ彡ヽ]){{0,6}}"
    r"|(?:[:;=][-o'^]?|8[-o'])'?[()DPpOo*/|\\\[\]]|xD+|</?3|\\[oO]/"
    r"|(?P<bare>[;^>=@-])(?:_{1,3}|[.ow])(?P=bare)|\^-?\^|>[_.]<"
    r"|(?P<one>[TOUXQ])_{1,3}(?P=one)|[oO]_[oO]|UwU|OwO"
)
_END: Final = r"(?=[.,!?]*(?:\s|\Z))"
EMOTICON: Final = re.compile(
    # A heart is one behind a face or a mark, or alone; else something is less than three.
    rf"(?<!\S)(?!</?3)(?:{_FACE}){_END}(?:[ \t]+</?3{_END})?"
    rf"|(?:(?<=[!?.~] )|(?<![^\n]))</?3(?=[ \t]*(?:\n|\Z))"
)
