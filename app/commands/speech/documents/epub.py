"""EPUB 2 and 3: the text in reading order, chapters by its contents, title, author and cover."""

import posixpath
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Final
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

from app.commands.speech.documents.document import Document, DocumentError
from app.commands.speech.documents.markup import HEADING_TAGS, read_blocks

_MOST_BYTES: Final = 256 * 2**20  # of one file, unpacked
_COVERS: Final = (b"\xff\xd8\xff", b"\x89PNG")
_TITLE_CHARS: Final = 200

Place = tuple[str, str]
"""A file in the archive, and the id of an element or an empty string."""


class _Book:
    """The files of an EPUB."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        container = self._xml("META-INF/container.xml")
        root = next((one.get("full-path") for one in _named(container, "rootfile")), None)
        if root is None:
            raise DocumentError("it names no contents in META-INF/container.xml")
        self.package = self._xml(root)
        self._folder = posixpath.dirname(root)
        self.manifest = {one.get("id", ""): one for one in _named(self.package, "item")}

    def text(self, path: str) -> str:
        """Return a file as text; raises DocumentError if it is missing, too large or damaged."""
        content = self.content(path)
        return content.decode(_encoding(content), "replace")

    def content(self, path: str) -> bytes:
        """Return a file; raises DocumentError as `text` does."""
        try:
            if self._archive.getinfo(path).file_size > _MOST_BYTES:
                raise DocumentError(f"{path} in it is too large")
            return self._archive.read(path)
        except KeyError as error:
            raise DocumentError(f"it lacks {path}") from error
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            raise DocumentError(f"{path} in it is damaged or encrypted: {error}") from error

    def path_of(self, item: ElementTree.Element) -> str:
        """Return where the file of an item is in the archive."""
        return self.joined(self._folder, item.get("href", ""))

    @staticmethod
    def joined(folder: str, href: str) -> str:
        """Return where a link of a file in a folder leads, without its fragment."""
        return posixpath.normpath(posixpath.join(folder, unquote(urldefrag(href).url)))

    def spine(self) -> Iterator[str]:
        """Yield the documents in reading order, without the list of contents."""
        for reference in _named(self.package, "itemref"):
            item = self.manifest.get(reference.get("idref", ""))
            if item is None or reference.get("linear") == "no":
                continue
            if "nav" not in item.get("properties", "").split():
                yield self.path_of(item)

    def contents(self) -> list[tuple[str, Place]]:
        """Return the titles of the book's list of contents with where they lead."""
        for item in self.manifest.values():
            if "nav" in item.get("properties", "").split():
                path = self.path_of(item)
                for nav in _named(self._xml(path), "nav"):
                    if "toc" in _attribute(nav, "type").split() or not _attribute(nav, "type"):
                        links = ((_flat(one), one.get("href", "")) for one in _named(nav, "a"))
                        return self._placed(path, links)
        for item in self.manifest.values():
            if item.get("media-type") == "application/x-dtbncx+xml":
                path = self.path_of(item)
                points = _named(self._xml(path), "navPoint")
                links = ((_flat(_child(one, "navLabel")), _source(one)) for one in points)
                return self._placed(path, links)
        return []

    def about(self, name: str) -> str:
        """Return what the metadata says, several with commas."""
        return ", ".join(filter(None, map(_flat, _named(self.package, name))))

    def cover(self) -> bytes | None:
        """Return the picture of the cover, if it is a JPEG or PNG."""
        named = [one.get("content", "") for one in _named(self.package, "meta") if _is_cover(one)]
        items = [
            *(one for one in self.manifest.values() if "cover-image" in one.get("properties", "")),
            *(self.manifest[one] for one in named if one in self.manifest),
        ]
        for item in items:
            try:
                picture = self.content(self.path_of(item))
            except DocumentError:
                continue
            if picture.startswith(_COVERS):
                return picture
        return None

    def check_readable(self) -> None:
        """Raise DocumentError if the text is encrypted; fonts may be."""
        if "META-INF/encryption.xml" not in self._archive.namelist():
            return
        listed = self._xml("META-INF/encryption.xml")
        locked = {unquote(one.get("URI", "")) for one in _named(listed, "CipherReference")}
        if not locked.isdisjoint(self.spine()):
            raise DocumentError("its text is encrypted (DRM): only its own reader can open it")

    def _placed(self, path: str, links: "Iterator[tuple[str, str]]") -> list[tuple[str, Place]]:
        folder = posixpath.dirname(path)
        return [
            (title, (self.joined(folder, href), unquote(urldefrag(href).fragment)))
            for title, href in links
            if title and href
        ]

    def _xml(self, path: str) -> ElementTree.Element:
        try:
            return ElementTree.fromstring(self.content(path))
        except ElementTree.ParseError as error:
            raise DocumentError(f"{path} in it is no XML: {error}") from error


def read_epub(content: bytes) -> Document:
    """Return what an EPUB says; raises DocumentError if it cannot be read."""
    try:
        archive = zipfile.ZipFile(BytesIO(content))
    except zipfile.BadZipFile as error:
        raise DocumentError(f"it is damaged: {error}") from error
    with archive:
        book = _Book(archive)
        book.check_readable()
        begins = dict[Place, str]()
        for title, place in book.contents():
            begins.setdefault(place, title)
        title = book.about("title")
        parts = _parts(book, begins, title)
        read = Document.of_blocks(parts, title=title, author=book.about("creator"))
        return replace(read, cover=book.cover())


def _parts(book: _Book, begins: dict[Place, str], title: str) -> Iterator[tuple[str, list[str]]]:
    """Yield titles and blocks of chapters: by the list of contents, or else a document each."""
    name = title
    blocks: list[str] = []
    for path in book.spine():
        _, read = read_blocks(book.text(path))
        begun = begins.get((path, ""))
        if not begins:
            begun = next((one.text for one in read if one.tag in HEADING_TAGS), name)
        for block in read:
            for identity in block.ids:
                begun = begins.get((path, identity), begun)
            if begun is not None and blocks:
                yield _short(name), blocks
                blocks = []
            name = begun or name
            begun = None
            blocks.append(block.text)
    if blocks:
        yield _short(name), blocks


def _short(title: str) -> str:
    return " ".join(title.split())[:_TITLE_CHARS]


def _named(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Return the elements of a name in any namespace, in order."""
    return [one for one in root.iter() if isinstance(one.tag, str) and _local(one.tag) == name]


def _child(root: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next((one for one in root if isinstance(one.tag, str) and _local(one.tag) == name), None)


def _source(point: ElementTree.Element) -> str:
    content = _child(point, "content")
    return "" if content is None else content.get("src", "")


def _attribute(element: ElementTree.Element, name: str) -> str:
    found = (value for key, value in element.attrib.items() if _local(key) == name)
    return next(found, "")


def _is_cover(meta: ElementTree.Element) -> bool:
    return meta.get("name") == "cover"


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _flat(element: ElementTree.Element | None) -> str:
    """Return the text of an element on one line."""
    return "" if element is None else " ".join("".join(element.itertext()).split())


def _encoding(content: bytes) -> str:
    """Return the encoding of an XHTML document: UTF-16 by its mark, otherwise UTF-8."""
    return "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
