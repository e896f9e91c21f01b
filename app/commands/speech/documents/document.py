"""The text of a file with its chapters."""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Markup of requests (docs/text.md), which a book has not.
_DIRECTION: Final = re.compile(r"\[(?=\[|\s*(?:pause|voice|rate)\s*[:\]])", re.IGNORECASE)
_TAG: Final = re.compile(r"<(?=[/!?A-Za-z])|&(?=#?\w+;)")


class DocumentError(ValueError):
    """A file cannot be spoken; the message says what it is, and what to do."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of a text that a player lists; its text begins with the heading."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says."""

    chapters: tuple[Chapter, ...]
    title: str = ""
    author: str = ""
    cover: bytes | None = None  # a JPEG or PNG
    has_lines: bool = True  # whether the lines of its text are those of the file

    @classmethod
    def of_blocks(
        cls, parts: Iterable[tuple[str, Iterable[str]]], title: str = "", author: str = ""
    ) -> "Document":
        """Return a document of titles and blocks of text, without what says nothing.

        Raises DocumentError if nothing is left.
        """
        texts = ((name, "".join(f"{block}\n\n" for block in blocks)) for name, blocks in parts)
        kept = tuple(Chapter(name, text) for name, text in texts if text.strip())
        if not kept:
            raise DocumentError("it has no text")
        return cls(kept, title, author, has_lines=False)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(chapter.text for chapter in self.chapters)


def literal(text: str) -> str:
    """Return text of a book in which nothing is markup of ours."""
    return _TAG.sub(lambda match: html.escape(match[0]), _DIRECTION.sub("(", text))
