"""Pronunciation dictionaries of the operator: JSON files of words and what is spoken for each.

    {"SQL": "sequel", "Nguyen": "[[wɪn]]"}

Of a folder, `default.json` is for every request, each other file for requests that name it. Loads
without torch.
"""

# ruff: noqa: RUF002 - IPA is full of letters that look like Latin ones

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_DICTIONARY: Final = "default"
"""The dictionary of every request."""

Dictionaries = Mapping[str, Mapping[str, str]]


class DictionaryError(ValueError):
    """A dictionary cannot be used; the message names its file."""


def read_dictionaries(source: str) -> Dictionaries:
    """Return the dictionaries of a folder by name, or of a file, the default; none of ""."""
    if not source:
        return {}
    path = Path(source).expanduser()
    if not path.is_dir():
        return {DEFAULT_DICTIONARY: _read(path)}
    return {file.stem.lower(): _read(file) for file in sorted(path.glob("*.json"))}


def _read(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DictionaryError(f"pronunciations: {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DictionaryError(f"pronunciations: {path}: {error}") from error
    if not isinstance(entries, dict) or not all(isinstance(one, str) for one in entries.values()):
        raise DictionaryError(f'pronunciations: {path}: write {{"word": "what is spoken"}}')
    return entries
