"""Written English to words: numbers, money, dates, times, units, abbreviations, addresses.

Rules of four kinds, a file each, applied in order; a rule may leave digits for a later one.
num2words spells numbers; `vocabulary` holds the tables. American usage. Case and punctuation
stay as they are. Knows nothing of phonemes or markup: a character of the Private Use Area stands
for something that is already phonemes and passes untouched.
"""

from typing import Final

from models.text.normalise import abbreviations, addresses, dates, quantities, symbols

_RULES: Final = (
    *symbols.LAYOUT,
    *addresses.RULES,
    *dates.RULES,
    *quantities.SPECIFIC,
    *abbreviations.RULES,
    *quantities.GENERAL,
    *symbols.RULES,
)


def normalise(text: str) -> str:
    """Return the text as words and punctuation only, with no digit left.

    The text is one of `characters.clean`: Latin letters, straight quotes, no emoji.
    """
    for rule in _RULES:
        text = rule.apply(text)
    return text.strip()
