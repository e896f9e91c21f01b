"""Sound in a file of MPEG-4 with chapters, title, author and cover: an audiobook (.m4b, .m4a)."""

from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.commands.errors import CommandFailed

if TYPE_CHECKING:
    from app.commands.speech.documents.document import Document

BOOK_SUFFIXES: Final = frozenset({".m4b", ".m4a"})
_MILLISECOND: Final = Fraction(1, 1000)


def write_book(out: Path, sound: bytes, document: "Document", bounds_s: Sequence[float]) -> None:
    """Write AAC in ADTS, ``sound``, as MPEG-4.

    ``bounds_s`` are where the chapters begin, and the end of the last.

    The file appears when it is complete. Raises CommandFailed if it cannot be written.
    """
    partial = out.with_name(f".{out.name}.partial")
    try:
        _write(partial, sound, document, bounds_s)
        partial.replace(out)
    except OSError as error:  # libav's errors are such, too
        partial.unlink(missing_ok=True)
        raise CommandFailed(f"out: {out}: {error.strerror}") from error


def _write(out: Path, sound: bytes, document: "Document", bounds_s: Sequence[float]) -> None:
    import av
    from av.stream import Disposition

    options = {"movflags": "+faststart", "brand": "M4B "}  # what players need stands first
    with ExitStack() as opened:
        source = opened.enter_context(av.open(BytesIO(sound), "r", format="aac"))
        file = opened.enter_context(av.open(str(out), "w", format="mp4", options=options))
        audio = source.streams.audio[0]
        stream = file.add_stream_from_template(audio)
        named = {"title": document.title, "album": document.title, "artist": document.author}
        file.metadata.update({name: value for name, value in named.items() if value})
        file.metadata["genre"] = "Audiobook"
        pictures = []
        if document.cover is not None:
            picture = opened.enter_context(av.open(BytesIO(document.cover), "r"))
            cover = file.add_stream_from_template(picture.streams.video[0])
            cover.disposition = Disposition.attached_pic
            pictures = [next(picture.demux(video=0))]
        chapters = _chapters(document, bounds_s)
        if len(chapters) > 1:
            file.set_chapters(chapters)
        for image in pictures:
            image.stream = cover
            image.pts = image.dts = 0
            file.mux(image)
        for packet in source.demux(audio):
            if packet.dts is not None:
                packet.stream = stream
                file.mux(packet)


def _chapters(document: "Document", bounds_s: Sequence[float]) -> list[Any]:
    """Return the chapters as libav has them; one of which nothing is heard is left out."""
    bounds_ms = [round(1000 * at) for at in bounds_s]
    return [
        {
            "id": number,
            "start": bounds_ms[number],
            "end": bounds_ms[number + 1],
            "time_base": _MILLISECOND,
            "metadata": {"title": chapter.title or f"Part {number + 1}"},
        }
        for number, chapter in enumerate(document.chapters[: len(bounds_s) - 1])
        if bounds_ms[number] < bounds_ms[number + 1]
    ]
