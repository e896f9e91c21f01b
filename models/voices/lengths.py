"""What the header of an audio file says of its length: a file that has less was cut off.

For most formats libav tells; here is what it does not tell.
"""

from typing import Final, Literal

_STATED: Final = {"wav", "w64", "flac", "mov", "matroska", "asf", "caf", "aiff", "au"}
_UNKNOWN_BYTES: Final = 2_000_000_000  # from here on, the writer of a RIFF did not know it
_MOST_BYTES: Final = 1 << 40
_BY_DS64: Final = 0xFFFFFFFF  # the size of what RF64 gives the size of elsewhere
_ASF_PROPERTIES: Final = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_HEADER: Final = 1 << 16
_LAST_PAGE: Final = 0x04  # the flag of Ogg
_HEADS: Final = (b"Xing", b"Info", b"VBRI")  # of an MP3 file: a first frame with the length of all


def states_length(content: memoryview, form: str) -> bool:
    """Return whether a file of libav's format ``form`` says how long it is."""
    if form == "mp3":
        first = bytes(content[:4096])
        return any(mark in first for mark in _HEADS)
    return form in _STATED


def stated_share(content: memoryview) -> float:
    """Return how many times as much sound as there is the header states; 1 if it states none."""
    said = 0
    start = 0
    match bytes(content[:4]):
        case b"RIFF" | b"RIFX" | b"RF64" | b"BW64":
            said, start = _riff_sound(content)
        case b"riff":  # Wave64
            said = int.from_bytes(content[16:24], "little")
        case b"caff":
            said, start = _caf_sound(content)
        case b"\x30\x26\xb2\x75":
            said = _asf_bytes(content)
    there = len(content) - start
    return max(1.0, said / there) if there > 0 and said < _MOST_BYTES else 1.0


def lacks_last_page(content: memoryview, form: str) -> bool:
    """Return whether an Ogg file ends before the page that is marked as its last."""
    if form != "ogg":
        return False
    whole = bytes(content)
    flags = whole[whole.rfind(b"OggS") + 5 :][:1]
    return not flags or not flags[0] & _LAST_PAGE


def lacks_index(content: memoryview, form: str) -> bool:
    """Return whether an MP4 file ends before the box with its index."""
    if form != "mov":
        return False
    at = 0
    while at + 8 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        if bytes(content[at + 4 : at + 8]) == b"moov":
            return at + size > len(content)
        if size == 1:  # 64 bits, behind the name
            size = int.from_bytes(content[at + 8 : at + 16], "big")
        if size < 8:
            break
        at += size
    return True


def _riff_sound(content: memoryview) -> tuple[int, int]:
    """Return how many bytes of sound a WAV file states, 0 if none, and where they begin."""
    order: Literal["little", "big"] = "big" if bytes(content[:4]) == b"RIFX" else "little"
    at = 12
    long = 0
    while at + 8 <= len(content):
        kind = bytes(content[at : at + 4])
        size = int.from_bytes(content[at + 4 : at + 8], order)
        if kind == b"ds64":
            long = int.from_bytes(content[at + 16 : at + 24], "little")
        if kind == b"data":
            said = long if size == _BY_DS64 else size
            return (0 if size >= _UNKNOWN_BYTES and not long else said), at + 8
        at += 8 + size + size % 2
    return 0, 0


def _caf_sound(content: memoryview) -> tuple[int, int]:
    """Return how many bytes of sound a CAF file states, 0 if none, and where they begin."""
    at = 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at + 4 : at + 12], "big", signed=True)
        if size < 0:
            break
        if bytes(content[at : at + 4]) == b"data":
            return size, at + 12
        at += 12 + size
    return 0, 0


def _asf_bytes(content: memoryview) -> int:
    """Return the size that a WMA file states of itself; 0 if it states none."""
    at = bytes(content[:_ASF_HEADER]).find(_ASF_PROPERTIES)
    return 0 if at < 0 else int.from_bytes(content[at + 40 : at + 48], "little")
