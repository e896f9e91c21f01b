"""Files told by their contents: those that can be spoken are read, others are named and refused."""

import codecs
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Final

from app.commands.speech.documents.captions import caption_text, is_captions
from app.commands.speech.documents.document import Chapter, Document, DocumentError
from app.commands.speech.documents.epub import read_epub
from app.commands.speech.documents.markup import HEADING_TAGS, read_blocks

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_AS_TEXT: Final = "save it as text, EPUB or HTML"
# What a file begins with, what it is, and what to do.
_OTHERS: Final = (
    (b"%PDF", "a PDF", "save it as text (pdftotext FILE.pdf)"),
    (b"{\\rtf", "an RTF document", _AS_TEXT),
    (b"\xd0\xcf\x11\xe0", "a document of an older Microsoft Office", _AS_TEXT),
    (b"ITSF", "a CHM help file", _AS_TEXT),
    (b"ITOLITLS", "a Microsoft Reader book", "convert it to EPUB"),
    (b"AT&TFORM", "a DjVu document", "save it as text (djvutxt FILE.djvu)"),
    (b"%!PS", "a PostScript document", "save it as text (ps2ascii FILE.ps)"),
    (b"\x1f\x8b", "a gzip archive", "unpack it (gunzip FILE.gz)"),
    (b"BZh", "a bzip2 archive", "unpack it"),
    (b"\xfd7zXZ", "an xz archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", "unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"Rar!", "a RAR archive", "unpack it"),
    (b"\x89PNG", "a picture", "name a file with text"),
    (b"\xff\xd8\xff", "a picture", "name a file with text"),
    (b"GIF8", "a picture", "name a file with text"),
    (b"RIFF", "a sound or a film", "name a file with text"),
    (b"OggS", "a sound", "name a file with text"),
    (b"fLaC", "a sound", "name a file with text"),
    (b"ID3", "a sound", "name a file with text"),
    (b"\xff\xfb", "a sound", "name a file with text"),
    (b"\x7fELF", "a program", "name a file with text"),
    (b"MZ", "a program", "name a file with text"),
    (b"SQLite format 3", "a database", "name a file with text"),
)
_ZIPPED: Final = (
    ("word/document.xml", "a Word document"),
    ("xl/workbook.xml", "a spreadsheet"),
    ("ppt/presentation.xml", "a presentation"),
    ("content.xml", "a document of LibreOffice"),
)
_ROOTS: Final = {
    "FictionBook": "a FictionBook",
    "svg": "a picture",
    "rss": "a news feed",
    "feed": "a news feed",
    "plist": "a property list",
}
_ROOT: Final = re.compile(
    r"\s*(?:<\?[^>]*\?>\s*|<!--.*?-->\s*)*+(?:<!doctype\s+(\w+)|<([\w:]+))", re.I | re.S
)
_CHARSET: Final = re.compile(
    rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([\w-]+)", re.I
)
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD: Final = re.compile(
    r"^(title|author)[ \t]*:[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.MULTILINE | re.I
)
_FENCE: Final = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = (
    r"(?:\d{1,3}|[ivxlcdm]{1,8}|the\s+\w+|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty\S*)"
)
_TITLE: Final = (
    rf"(?:chapter|part|book|act|canto|stave|letter)\s+{_NUMBER}\b[^\n]{{0,80}}"
    r"|prologue|epilogue|preface|foreword|introduction|afterword"
)
# A line of its own, as books of plain text have it.
_HEADING: Final = re.compile(
    rf"(?:\A|\n[ \t]*\n)[ \t]*(?P<title>(?:{_TITLE})\.?)[ \t]*(?=\n[ \t]*\n)", re.IGNORECASE
)


def read_document(content: bytes, name: str) -> Document:
    """Return what a file says, whatever its name.

    Raises DocumentError if it is of a kind that is not read, damaged, or in an unknown encoding.
    """
    if content.startswith(b"PK"):
        return _unzipped(content)
    for start, what, cure in _OTHERS:
        if content.startswith(start):
            raise DocumentError(f"this is {what}: {cure}")
    if content[60:68] in {b"BOOKMOBI", b"TEXtREAd"}:
        raise DocumentError("this is a Kindle book: convert it to EPUB")
    if content[4:8] == b"ftyp":
        raise DocumentError("this is a sound or a film: name a file with text")
    text = decoded(content, name).replace("\r\n", "\n").replace("\r", "\n")
    return read_plain_text(text)


def read_plain_text(text: str) -> Document:
    """Return what the text of a file says: of HTML, of subtitles, of Markdown, or as it is."""
    root = _ROOT.match(text)
    kind = (root[1] or root[2]).rpartition(":")[2] if root else ""
    if kind.lower() in {"html", "head", "body"}:
        return _html(text)
    if kind in _ROOTS:
        raise DocumentError(f"this is {_ROOTS[kind]}: {_AS_TEXT}")
    if is_captions(text):
        return Document.of_blocks([("", [caption_text(text)])])
    matter = _FRONT_MATTER.match(text)
    about = {one[1].lower(): one[2] for one in _FIELD.finditer(matter[1])} if matter else {}
    if matter:  # its lines stay, so that others keep their numbers
        text = "\n" * matter[0].count("\n") + text[matter.end() :]
    title = about.get("title", "")
    chapters = tuple(one for one in _plain_chapters(text, title) if one.text)
    return Document(chapters, title, about.get("author", ""))


def decoded(content: bytes, name: str) -> str:
    """Return a file as text: by its mark, by what it says of itself, or as UTF-8.

    Raises DocumentError, with what helps, if it is none of these.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content[len(mark) :].decode(encoding)
            except UnicodeDecodeError as error:
                raise DocumentError(
                    f"it is damaged: no {encoding} at byte {error.start}"
                ) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        declared = _CHARSET.search(content[:2048])
        if declared is not None:
            named = (declared[1] or declared[2]).decode()
            try:
                return content.decode("cp1252" if named.lower() == "iso-8859-1" else named)
            except (LookupError, UnicodeDecodeError):
                pass
        likely = "UTF-16" if content.count(0) > len(content) // 4 else "WINDOWS-1252"
        raise DocumentError(
            f"it is not UTF-8 (byte {error.start}), perhaps {likely}: convert it (iconv -f {likely}"
            f" -t UTF-8 {name} > utf8.txt)"
        ) from error
    if text.count("\0") > len(text) // 4:
        raise DocumentError(
            f"it has no text but zeros, perhaps UTF-16: convert it (iconv -f UTF-16 -t UTF-8 {name}"
            " > utf8.txt)"
        )
    return text


def _unzipped(content: bytes) -> Document:
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile as error:
        raise DocumentError(f"this is a damaged EPUB or ZIP archive: {error}") from error
    if "META-INF/container.xml" in names:
        return read_epub(content)
    for member, what in _ZIPPED:
        if member in names:
            raise DocumentError(f"this is {what}: {_AS_TEXT}")
    raise DocumentError("this is a ZIP archive: unpack it, and name the file in it")


def _html(text: str) -> Document:
    """Return a page: its chapters begin at headings of the highest kind of which it has several."""
    title, blocks = read_blocks(text)
    counts = {tag: sum(one.tag == tag for one in blocks) for tag in sorted(HEADING_TAGS)}
    tag = next((one for one in counts if counts[one] > 1), "")
    chapters: list[tuple[str, list[str]]] = [(title, [])]
    for block in blocks:
        if block.tag == tag:
            chapters.append((block.text, []))
        chapters[-1][1].append(block.text)
    return Document.of_blocks(chapters, title=title)


def _plain_chapters(text: str, title: str) -> Iterator[Chapter]:
    """Yield the chapters: by the headings of Markdown, or by lines of their own, as Chapter 1."""
    begins = [*_markdown_headings(text)]
    if len(begins) < 2:
        begins = [(one.start("title"), one["title"]) for one in _HEADING.finditer(text)]
    bounds = [*begins, (len(text), "")]
    yield Chapter(title, text[: bounds[0][0]])
    for number, (at, heading) in enumerate(begins):
        yield Chapter(" ".join(heading.split()), text[at : bounds[number + 1][0]])


def _markdown_headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each heading of the highest level of which there are several begins."""
    fenced = [one.span() for one in _FENCE.finditer(text)]
    for level in (1, 2):
        found = [
            (one.start(), one[1].strip(" #*_"))
            for one in re.finditer(rf"^#{{{level}}}[ \t]+(\S.*)$", text, re.MULTILINE)
            if not any(begin <= one.start() < end for begin, end in fenced)
        ]
        if len(found) > 1:
            yield from found
            return
