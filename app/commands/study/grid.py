"""The takes of a study: values of knobs, texts, voices and seeds."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from pydantic import ValidationError

from app.api.errors import invalid
from app.commands.errors import CommandError
from samplers.knobs.params import SamplingParams

MOST_VALUES = 1000
"""Of one knob; a study of more would take days."""

Setting = Mapping[str, Any]
"""Knob -> value."""


@dataclass(frozen=True)
class StudyTake:
    """A take to be spoken: all that its codes depend on, beside the model."""

    setting: Setting  # the knobs that vary
    fixed: Setting  # the others that are set
    text: str
    voice: str | None
    seed: int
    first: bool = False  # whether its text and voice are the first of the study

    @property
    def body(self) -> dict[str, Any]:
        """The fields of its request, without those of the answer's form."""
        voice = {} if self.voice is None else {"voice": self.voice}
        return {**self.fixed, **self.setting, **voice, "input": self.text, "seed": self.seed}

    @property
    def key(self) -> str:
        """A text that only equal takes share."""
        return json.dumps(self.body, sort_keys=True)


def takes_of(
    settings: Sequence[Setting],
    fixed: Setting,
    texts: Sequence[str],
    voices: Sequence[str | None],
    seeds: int,
) -> list[StudyTake]:
    """Return all takes, so that any beginning of the list is balanced over the settings."""
    return [
        StudyTake(setting, fixed, text, voice, seed, (text, voice) == (texts[0], voices[0]))
        for seed in range(seeds)
        for text in texts
        for voice in voices
        for setting in settings
    ]


def settings_of(varied: Mapping[str, Sequence[Any]], *, crossed: bool) -> list[Setting]:
    """Return each knob's values, one knob at a time, or every combination."""
    if crossed:
        return [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    return [{name: value} for name, values in varied.items() for value in values]


def read_varied(words: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each knob, from words such as `top_p=0.8,0.9` and `top_k=10:90:9`.

    A value without a name belongs to the name before it. Raises CommandError if a word is
    neither, or has no legal value.
    """
    varied: dict[str, list[Any]] = {}
    for word in words:
        name, named, text = word.rpartition("=")
        if not named and not varied:
            raise CommandError(f"vary: {word!r} is not NAME=VALUE,VALUE or NAME=LOW:HIGH:COUNT")
        if named:
            varied[name] = []
        varied[[*varied][-1]] += _values(text)
    for name, values in varied.items():
        for value in values:
            check_setting({name: value})
    return varied


def read_fixed(words: Sequence[str]) -> dict[str, Any]:
    """Return the knobs of words such as `preset=stable`; raises CommandError if one is wrong."""
    found = {}
    for word in words:
        name, named, text = word.partition("=")
        if not named:
            raise CommandError(f"fixed: {word!r} is not NAME=VALUE")
        found[name] = read_value(text)
    check_setting(found)
    return found


def check_setting(setting: Setting) -> None:
    """Raise CommandError unless these are knobs at legal values."""
    try:
        SamplingParams.model_validate_json(json.dumps(setting))
    except ValidationError as error:
        raise CommandError(invalid(error).message) from error


def _values(text: str) -> Iterator[Any]:
    low, *rest = text.split(":")
    if len(rest) != 2 or text.startswith(("[", "{")):
        yield read_value(text)
        return
    try:
        ends = (float(low), float(rest[0]))
        count = int(rest[1])
    except ValueError:
        count = 0
    if not 1 <= count <= MOST_VALUES or not np.isfinite(ends).all():
        raise CommandError(
            f"vary: {text!r} is not LOW:HIGH:COUNT, numbers as in 0.1:0.9:9, of at most"
            f" {MOST_VALUES} values"
        )
    for number in np.linspace(*ends, count):
        exact = round(float(number), 6)
        whole = all(end.is_integer() for end in ends) and exact.is_integer()
        yield int(exact) if whole and "." not in text else exact


def words_of(text: str) -> list[str]:
    """Return the words between the commas that are in no bracket or brace."""
    words = [""]
    depth = 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return words


def read_value(text: str) -> Any:
    """Return what a word stands for: JSON, a list of words such as `[top_k,top_p]`, or itself."""
    try:
        return json.loads(text)
    except ValueError:
        inner = text[1:-1]
        return [read_value(one) for one in words_of(inner)] if text == f"[{inner}]" else text
