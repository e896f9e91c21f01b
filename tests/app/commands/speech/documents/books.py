"""EPUBs made for tests, as three kinds of tools write them."""

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"'
    ' version="1.0"><rootfiles><rootfile full-path="{root}"'
    ' media-type="application/oebps-package+xml"/></rootfiles></container>'
)
PAGE = (
    '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>'
    '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
    "<head><title>{title}</title><style>p {{ color: red }}</style></head><body>{body}</body></html>"
)


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """Return an EPUB of files; the type of the archive comes first, not compressed."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def png() -> bytes:
    """Return a small picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    rows = b"".join(b"\x00" + b"\x80\x20\x20" * 16 for _ in range(16))
    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def epub3(chapters: Sequence[tuple[str, str]], title: str = "A Walk", cover: bool = True) -> bytes:
    """Return an EPUB 3, a document a chapter of (title, body), with nav, cover and a note."""
    names = [f"c{number}.xhtml" for number in range(len(chapters))]
    items = "".join(
        f'<item id="i{n}" href="text/{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(names)
    )
    links = "".join(
        f'<li><a href="text/{name}">{head}</a></li>'
        for name, (head, _) in zip(names, chapters, strict=True)
    )
    refs = "".join(f'<itemref idref="i{n}"/>' for n in range(len(names)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata'
        f' xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title>'
        "<dc:creator>Ann Author</dc:creator><dc:creator>Bob Co</dc:creator></metadata><manifest>"
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="cv" href="cover.png" media-type="image/png" properties="cover-image"/>'
        f'{items}</manifest><spine><itemref idref="nav"/>{refs}</spine></package>'
    )
    nav = PAGE.format(title="Contents", body=f'<nav epub:type="toc"><ol>{links}</ol></nav>')
    files: dict[str, str | bytes] = {
        "META-INF/container.xml": CONTAINER.format(root="OEBPS/package.opf"),
        "OEBPS/package.opf": package,
        "OEBPS/nav.xhtml": nav,
    }
    if cover:
        files["OEBPS/cover.png"] = png()
    for name, (head, body) in zip(names, chapters, strict=True):
        files[f"OEBPS/text/{name}"] = PAGE.format(title=head, body=body)
    return zipped(files)


def epub2(body: str, points: Sequence[tuple[str, str]]) -> bytes:
    """Return an EPUB 2 of one document, whose chapters are fragments of it named in an NCX."""
    nav = "".join(
        f'<navPoint id="p{n}" playOrder="{n}"><navLabel><text>{head}</text></navLabel>'
        f'<content src="my%20book.html#{fragment}"/></navPoint>'
        for n, (head, fragment) in enumerate(points)
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata'
        ' xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Old Tales</dc:title>'
        '<meta name="cover" content="pic"/></metadata><manifest>'
        '<item id="b" href="my%20book.html" media-type="application/xhtml+xml"/>'
        '<item id="pic" href="c.png" media-type="image/png"/>'
        '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        '</manifest><spine toc="ncx"><itemref idref="b"/></spine></package>'
    )
    ncx = f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{nav}</navMap></ncx>'
    return zipped({
        "META-INF/container.xml": CONTAINER.format(root="content.opf"),
        "content.opf": package,
        "toc.ncx": ncx,
        "c.png": png(),
        "my book.html": PAGE.format(title="Old Tales", body=body),
    })


def bare(bodies: Sequence[str]) -> bytes:
    """Return an EPUB without any list of contents, with files missing that are named."""
    items = "".join(
        f'<item id="i{n}" href="{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(bodies))
    )
    refs = "".join(f'<itemref idref="i{n}"/>' for n in range(len(bodies)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest>'
        f'{items}</manifest><spine><itemref idref="gone"/>{refs}</spine></package>'
    )
    files = {
        "META-INF/container.xml": CONTAINER.format(root="a/b/c.opf"),
        "a/b/c.opf": package,
    }
    for number, body in enumerate(bodies):
        files[f"a/b/{number}.xhtml"] = PAGE.format(title="", body=body)
    return zipped(files)
