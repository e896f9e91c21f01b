"""Texts as books, people and language models write them: what plain sentences lack.

WordNet's examples end with a full stop, and are short. A service is sent lead-ins that end with a
colon, ellipses, quotations, lists, names, figures, and sentences of up to a hundred phonemes. Each
*kind* here is a list of such texts, made of WordNet (Debian's ``wordnet-base``) and ``fortunes``;
what of them is sent to the model at once is what the front end cuts them into.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from lab.training.speech import corpus
from models.text import TextError, normalise, phonemize
from models.text.characters import clean

PHONEMES: Final = (6, 100)
LONG: Final = (70, 100)
SHARES: Final = {
    "prose": 0.22,
    "long": 0.16,
    "lead_ins": 0.1,
    "marks": 0.12,
    "quotations": 0.08,
    "lists": 0.08,
    "names": 0.12,
    "answers": 0.12,
}
"""How much of what is said is of each kind."""
LAST_MARKS: Final = (":", ":", "...", "...", ";", ",", "!", "?", "")
LEAD_INS: Final = (
    "Here are the {things}:", "There are {number} {things}:", "You need the following {things}:",
    "Sure! Here is the {thing}:", "Of course, here is a {thing} for you:", "My answer is this:",
    "The {things} are as follows:", "Let me explain the {thing}:", "For example:", "Note:",
    "Ingredients:", "In short:", "Step {number}:", "Let me see...", "Well...", "I am not sure...",
    "About the {thing}...", "So, the {thing}...", "Great question!", "Absolutely!", "Good morning!",
    "Is it about the {thing}?", "Do you mean the {thing}, or the {other}?", "Thank you,",
    "First of all,", "On the other hand,", "By the way,", "Here is what I found:", "One moment...",
    "What about the {thing}?", "Yes, that is right:", "A word about the {thing}:", "To sum up,",
    "Remember:", "Warning: the {thing} is hot!", "Options:", "The {thing}:", "Hmm... the {thing}?",
)  # fmt: skip
ORDINALS: Final = ("First", "Second", "Third", "Then", "Next", "After that", "Finally", "Last")
VERBS: Final = ("said", "asked", "cried", "replied", "whispered", "answered", "shouted", "wrote")
WHOSE: Final = ("she", "he", "they", "the old man", "my mother", "somebody", "{name}", "{name}")
ACTS: Final = (
    "{name} called about the {thing} this morning.", "Have you met {name}?",
    "{name} and {other_name} will be there at {time}.", "Please ask {name} for the {thing}.",
    "I will put you through to {name}.", "This is {name} speaking.", "Dear {name}, thank you!",
    "Was it {name}, or {other_name}?", "{name} lives near {place}.",
    "From {place} to {other_place}.", "The train to {place} leaves at {time}.",
    "{place}, {other_place} and {place_3}.",
)  # fmt: skip
ANSWERS: Final = (
    "A {thing} is {definition}.", "In simple words, a {thing} is {definition}.",
    "Your order {count} will arrive on {day} between {hour} and {later} p.m.",
    "The total is ${price}, which includes the {thing}.", "It opens at {time} on {day}s.",
    "Your appointment is on {day}, {month} {date}, at {time}.",
    "I have set a timer for {minutes} minutes.", "It is {degrees} degrees in {place} right now.",
    "I could not find the {thing}; shall I look for the {other} instead?",
    "The {thing} was made in {year}, about {share}% earlier than the {other}.",
    "Turn left after {minutes} meters, then follow the signs to {place}.",
    "You have {number} new messages, and one of them is from {name}.",
)  # fmt: skip
NUMBERS: Final = ("two", "three", "four", "five", "six", "seven")
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = ("January", "March", "April", "May", "July", "September", "October", "December")
_NAME: Final = re.compile(r"[A-Z][a-z]+(?:_[A-Z][a-z]+){0,2}")
_PERSON, _PLACE, _THING = "18", "15", "06"  # WordNet's lexicographer files


@dataclass(frozen=True)
class Lexicon:
    """Words of WordNet to fill templates with, what it says of some, and plain sentences."""

    said: Sequence[str]
    people: Sequence[tuple[str, str]]
    places: Sequence[str]
    things: Sequence[tuple[str, str]]


@cache
def lexicon() -> Lexicon:
    """Return names and things with their definitions.

    Raises FileNotFoundError if ``wordnet-base`` is not installed.
    """
    path = corpus.WORDNET / "data.noun"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: apt-get install wordnet-base")
    people, places, things = [], [], []
    for line in path.read_text("utf-8", "replace").splitlines():
        if line.startswith(" "):
            continue
        data, _, gloss = line.partition("|")
        fields = data.split()
        told = re.sub(r"\([^)]*\)", "", gloss.partition('"')[0]).partition(";")[0].strip()
        words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        named = " @i " in data
        if named and fields[1] == _PERSON:
            people += [(one.replace("_", " "), told) for one in words if _NAME.fullmatch(one)]
        elif named and fields[1] == _PLACE:
            places += [one.replace("_", " ") for one in words if _NAME.fullmatch(one)]
        elif fields[1] == _THING and re.fullmatch(r"[a-z]{3,12}", words[0]):
            things.append((words[0], told))
    return Lexicon(corpus.said_sentences(), people, places, things)


def _filled(template: str, chance: random.Random) -> str:
    """Return a template with words in its places."""
    words = lexicon()
    told: dict[str, object] = {}
    thing, definition = chance.choice(words.things)
    told |= {"thing": thing, "definition": definition, "things": _plural(thing)}
    told |= {"other": chance.choice(words.things)[0], "number": chance.choice(NUMBERS)}
    told |= {"name": chance.choice(words.people)[0], "other_name": chance.choice(words.people)[0]}
    told |= {key: chance.choice(words.places) for key in ("place", "other_place", "place_3")}
    told |= {"day": chance.choice(DAYS), "month": chance.choice(MONTHS)}
    hour = chance.randint(1, 8)
    told |= {"hour": hour, "later": hour + chance.randint(1, 3), "date": chance.randint(1, 28)}
    told["time"] = f"{chance.randint(1, 12)}:{chance.choice(('00', '15', '30', '45', '05', '20'))}"
    told["price"] = f"{chance.randint(1, 400)}.{chance.choice(('00', '50', '99', '25'))}"
    told |= {"count": chance.randint(100, 9999), "minutes": chance.randint(2, 90)}
    told |= {"degrees": chance.randint(1, 35), "year": chance.randint(1700, 2030)}
    told["share"] = chance.randint(2, 95)
    return template.format_map(told)


def _plural(word: str) -> str:
    if re.search(r"(s|x|z|ch|sh)$", word):
        return f"{word}es"
    return f"{word[:-1]}ies" if re.search(r"[^aeiou]y$", word) else f"{word}s"


def _bare(text: str) -> str:
    return text.rstrip(".!?,;: ")


def _lowered(text: str) -> str:
    """Return a sentence as it stands behind others; "I" stays."""
    return text if re.match(r"I\b|I'", text) else text[0].lower() + text[1:]


def _prose(chance: random.Random) -> Iterator[str]:
    """Yield sentences of fortunes, with whatever marks they have."""
    found = [
        text
        for text in corpus.fortune_sentences()
        if re.fullmatch(r"[A-Za-z0-9 ,.'?!\";:()%$-]+", text) and not re.search(r"[A-Z]{3}", text)
    ]
    chance.shuffle(found)
    yield from found


def _long(chance: random.Random) -> Iterator[str]:
    """Yield sentences of two or three clauses."""
    joints = (", and ", ", but ", "; ", ", so ", ", because ", " when ", ", while ", ": ", " - ")
    while True:
        clauses = [_bare(chance.choice(lexicon().said)) for _ in range(chance.choice((2, 2, 3)))]
        text = clauses[0]
        for clause in clauses[1:]:
            text += chance.choice(joints) + _lowered(clause)
        yield text + chance.choice((".", ".", ".", "?", "!", ","))


def _lead_ins(chance: random.Random) -> Iterator[str]:
    while True:
        text = _filled(chance.choice(LEAD_INS), chance)
        if chance.random() < 0.25:
            text = f"{_bare(chance.choice(lexicon().said))}. {text}"
        yield text


def _marks(chance: random.Random) -> Iterator[str]:
    """Yield plain sentences and their first words, each with another last mark."""
    while True:
        words = _bare(chance.choice(lexicon().said)).split()
        if chance.random() < 0.5:
            words = words[: chance.randint(2, 6)]
        yield _bare(" ".join(words)) + chance.choice(LAST_MARKS)


def _quotations(chance: random.Random) -> Iterator[str]:
    while True:
        said, other = (_bare(chance.choice(lexicon().said)) for _ in range(2))
        who = _filled(chance.choice(WHOSE), chance)
        verb, mark = chance.choice(VERBS), chance.choice((",", "!", "?"))
        yield chance.choice((
            f'"{said}{mark}" {who} {verb}.',
            f'{who[0].upper()}{who[1:]} {verb}, "{said}."',
            f'"{said}," {verb} {who}, "{_lowered(other)}."',
            f'The sign said "{said}", {_lowered(other)}.',
            f"'{said}...' {who} {verb}.",
        ))


def _lists(chance: random.Random) -> Iterator[str]:
    things = [name for name, _ in lexicon().things]
    while True:
        some = [chance.choice(things) for _ in range(chance.randint(3, 5))]
        several = ", ".join(_plural(one) for one in some[:-1])
        number = chance.choice(("one", *NUMBERS))
        yield chance.choice((
            f"{several}{chance.choice((',', ''))} and {_plural(some[-1])}.",
            f"{several} or {_plural(some[-1])}?",
            f"{number}, {_lowered(_bare(chance.choice(lexicon().said)))}",
            f"{chance.choice(ORDINALS)}, {_lowered(_bare(chance.choice(lexicon().said)))}.",
            f"a {some[0]}, a {some[1]}, and last of all a {some[2]}.",
            f"{some[0]}: {_lowered(_bare(chance.choice(lexicon().said)))}",
        ))


def _names(chance: random.Random) -> Iterator[str]:
    while True:
        if chance.random() < 0.5:
            yield _filled(chance.choice(ACTS), chance)
            continue
        name, told = chance.choice(lexicon().people)
        if not told:
            continue
        article = "an" if told[0].lower() in "aeiou" else "a"
        yield f"{name} was {article} {told}."


def _answers(chance: random.Random) -> Iterator[str]:
    while True:
        yield _filled(chance.choice(ANSWERS), chance)


KINDS: Final[Mapping[str, Callable[[random.Random], Iterator[str]]]] = {
    "prose": _prose,
    "long": _long,
    "lead_ins": _lead_ins,
    "marks": _marks,
    "quotations": _quotations,
    "lists": _lists,
    "names": _names,
    "answers": _answers,
}


def as_spoken(text: str, bounds: tuple[int, int] = PHONEMES) -> str | None:
    """Return a text as the front end writes it; None if it is unusable.

    Its phonemes must be within the ``bounds``, and all of its letters readable.
    """
    try:
        written = normalise(clean(text)).strip()
        phonemes = phonemize(written)
    except TextError:
        return None
    if not re.search(r"[A-Za-z]", written) or not bounds[0] <= len(phonemes) <= bounds[1]:
        return None
    return written[0].upper() + written[1:]


def texts(kind: str, seed: int = 0) -> Iterator[str]:
    """Yield texts of a kind, none of them twice, in an order given by ``seed``."""
    chance = random.Random(f"{kind} {seed}")
    bounds = LONG if kind == "long" else PHONEMES
    given: set[str] = set()
    for text in KINDS[kind](chance):
        spoken = as_spoken(text, bounds)
        if spoken and spoken not in given:
            given.add(spoken)
            yield spoken


def mixed_texts(seed: int = 0) -> Iterator[str]:
    """Yield texts of all kinds, by their shares; those that run out are left out."""
    chance = random.Random(seed)
    sources = {kind: texts(kind, seed) for kind in SHARES}
    while sources:
        kind = chance.choices(list(sources), [SHARES[kind] for kind in sources])[0]
        text = next(sources[kind], None)
        if text is None:
            del sources[kind]
        else:
            yield text
