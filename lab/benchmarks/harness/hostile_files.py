"""Files that are no honest recordings: small ones that unpack to much, and many tiny packets.

Each is made of its format's own structures, so that a reader believes it. ``HUGE`` have an index, a
picture or a number that is far larger than the file; ``TINY`` some megabytes of packets that are
as small as the format allows, or damaged.
"""

import base64
import io
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

Build = Callable[[], bytes]

_ADTS = bytes([0xFF, 0xF1, 0x50, 0x40])


def _box(kind: bytes, *parts: bytes) -> bytes:
    """Return a box of MP4."""
    return struct.pack(">I", 8 + sum(map(len, parts))) + kind + b"".join(parts)


def _full(kind: bytes, *parts: bytes) -> bytes:
    return _box(kind, bytes(4), *parts)


def _track(number: int, tables: tuple[bytes, ...], kind: bytes = b"soun") -> bytes:
    head = _full(b"tkhd", struct.pack(">IIIII", 0, 0, number, 0, 1000), bytes(60))
    media = _full(b"mdhd", struct.pack(">IIII", 0, 0, 16_000, 1000), b"\x55\xc4\0\0")
    handler = _full(b"hdlr", bytes(4), kind, bytes(12), b"\0")
    entry = struct.pack(">HHHHI", 1, 16, 0, 0, 16_000 << 16)
    described = _box(b"sowt", bytes(6), b"\0\1", bytes(8), entry)
    stsd = _full(b"stsd", struct.pack(">I", 1), described)
    return _box(
        b"trak",
        head,
        _box(b"mdia", media, handler, _box(b"minf", _box(b"stbl", stsd, *tables))),
    )


def _mp4(*tracks: bytes, data: bytes = bytes(64), more: bytes = b"") -> bytes:
    head = _full(b"mvhd", struct.pack(">IIII", 0, 0, 1000, 1000), bytes(80))
    moov = _box(b"moov", head, *tracks, more)
    return _box(b"ftyp", b"isom", bytes(4), b"isom") + moov + _box(b"mdat", data)


def _tables(samples: int, chunks: int = 1, size: int = 1) -> tuple[bytes, ...]:
    """Return an index of so many samples of a size, in chunks that all begin at one place."""
    each = samples // chunks
    return (
        _full(b"stts", struct.pack(">III", 1, samples, 2)),
        _full(b"stsc", struct.pack(">IIII", 1, 1, each, 1)),
        _full(b"stsz", struct.pack(">II", size, samples)),
        _full(b"stco", struct.pack(">I", chunks), struct.pack(">I", 40) * chunks),
    )


def index_of_samples(samples: int, tracks: int = 1) -> bytes:
    """Return an MP4 file whose index says that there are so many samples."""
    return _mp4(*(_track(one + 1, _tables(samples)) for one in range(tracks)))


def index_of_times(entries: int) -> bytes:
    """Return an MP4 file with a number of entries that its table of times does not have."""
    said = struct.pack(">I", entries)
    tables = (
        _full(b"stts", said, bytes(16)),
        _full(b"ctts", said, bytes(16)),
        _full(b"stsz", struct.pack(">I", 0), said, bytes(16)),
        *_tables(1000)[1:2],
        _full(b"stco", said, bytes(16)),
    )
    return _mp4(_track(1, tables))


def fragment_of_samples(samples: int) -> bytes:
    """Return a fragmented MP4 file whose one fragment says that it has so many samples."""
    trex = _full(b"trex", struct.pack(">IIIII", 1, 1, 2, 1, 0))
    empty = tuple(_full(kind, bytes(4)) for kind in (b"stts", b"stsc", b"stco"))
    whole = _mp4(_track(1, (*empty, _full(b"stsz", bytes(8)))), more=_box(b"mvex", trex))
    run = _full(b"trun", struct.pack(">I", samples))
    header = struct.pack(">I", 0x20000) + struct.pack(">I", 1)
    fragment = _box(b"traf", _box(b"tfhd", header), run)
    return whole + _box(b"moof", _full(b"mfhd", struct.pack(">I", 1)), fragment)


def nested_boxes(depth: int) -> bytes:
    """Return an MP4 file of boxes in boxes."""
    head = b"".join(struct.pack(">I4s", 8 * (depth - at) + 8, b"moov") for at in range(depth))
    return _box(b"ftyp", b"isom", bytes(4), b"isom") + head + _box(b"free")


@cache
def png(width: int, height: int) -> bytes:
    """Return a black picture of 64 bits a pixel, which packs a thousand times."""
    packer = zlib.compressobj(9)
    row = bytes(1 + 8 * width)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", width, height, 16, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


_SIDE = 8000


def _seven_bits(number: int) -> bytes:
    return bytes(number >> shift & 127 for shift in (21, 14, 7, 0))


def picture_in_tag(frames: int = 200) -> bytes:
    """Return an MP3 file with a picture in its ID3 tag."""
    content = b"\0image/png\0\x03\0" + png(_SIDE, _SIDE // 2)
    frame = b"APIC" + _seven_bits(len(content)) + b"\0\0" + content
    sound = (b"\xff\xfb\x90\xc4" + bytes(413)) * frames
    return b"ID3\x04\0\0" + _seven_bits(len(frame)) + frame + sound


def picture_in_flac() -> bytes:
    """Return a FLAC file with a picture among its metadata."""
    content = png(_SIDE, _SIDE // 2)
    said = struct.pack(">II9sIIIIII", 3, 9, b"image/png", 0, _SIDE, _SIDE, 64, 0, len(content))
    block = said + content
    stream = struct.pack(">HH", 4096, 4096) + bytes(6)
    stream += (24_000 << 44 | 15 << 36 | 48_000).to_bytes(8, "big") + bytes(16)
    blocks = b"\0" + len(stream).to_bytes(3, "big") + stream
    return b"fLaC" + blocks + b"\x86" + len(block).to_bytes(3, "big") + block


def _ogg_page(packets: list[bytes], number: int, flags: int = 0, at: int = 0) -> bytes:
    """Return a page of Ogg with some packets."""
    lacing = b"".join(b"\xff" * (len(one) // 255) + bytes([len(one) % 255]) for one in packets)
    head = struct.pack("<4sBBqIII", b"OggS", 0, flags, at, 1, number, 0)
    page = bytearray(head + bytes([len(lacing)]) + lacing + b"".join(packets))
    struct.pack_into("<I", page, 22, _ogg_sum(page))
    return bytes(page)


def _ogg_table() -> list[int]:
    table = []
    for one in range(256):
        value = one << 24
        for _ in range(8):
            value = value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)
        table.append(value & 0xFFFFFFFF)
    return table


_OGG_TABLE = _ogg_table()


def _ogg_sum(page: bytes | bytearray) -> int:
    value = 0
    for byte in page:
        value = (value << 8 & 0xFFFFFFFF) ^ _OGG_TABLE[value >> 24 ^ byte]
    return value


def _opus_head(channels: int = 1) -> bytes:
    return struct.pack("<8sBBHIHB", b"OpusHead", 1, channels, 0, 48_000, 0, 0)


def _opus(tags: bytes, pages: bytes) -> bytes:
    count = struct.pack("<8sI4sI", b"OpusTags", 4, b"none", 1 if tags else 0)
    comment = count + (struct.pack("<I", len(tags)) + tags if tags else b"")
    body = [comment[at : at + 255 * 254] for at in range(0, len(comment), 255 * 254)]
    head = _ogg_page([_opus_head()], 0, 2)
    # A packet that goes on has no last segment of less than 255 bytes.
    for number, part in enumerate(body):
        lacing = b"\xff" * (len(part) // 255)
        if number == len(body) - 1:
            lacing += bytes([len(part) % 255])
        flags = 1 if number else 0
        packed = struct.pack("<4sBBqIII", b"OggS", 0, flags, 0, 1, number + 1, 0)
        page = bytearray(packed + bytes([len(lacing)]) + lacing + part)
        struct.pack_into("<I", page, 22, _ogg_sum(page))
        head += bytes(page)
    return head + pages


def picture_in_ogg() -> bytes:
    """Return an Opus file with a picture in its comments."""
    content = png(_SIDE, _SIDE // 8)
    block = struct.pack(">II9sIIIIII", 3, 9, b"image/png", 0, _SIDE, _SIDE, 64, 0, len(content))
    tags = b"METADATA_BLOCK_PICTURE=" + base64.b64encode(block + content)
    return _opus(tags, tiny_ogg(1 << 14, bare=True))


def picture_in_m4a() -> bytes:
    """Return an MP4 file with a picture as its cover."""
    data = _box(b"data", struct.pack(">II", 14, 0), png(_SIDE, _SIDE // 2))
    items = _box(b"ilst", _box(b"covr", data))
    handler = _full(b"hdlr", bytes(4), b"mdirappl", bytes(9))
    meta = _box(b"udta", _full(b"meta", handler, items))
    return _mp4(_track(1, _tables(60_000, 30_000, 2)), data=bytes(4096), more=meta)


def _element(name: int, content: bytes) -> bytes:
    """Return an element of Matroska; its size takes 8 bytes."""
    kind = name.to_bytes((name.bit_length() + 7) // 8, "big")
    return kind + (1 << 56 | len(content)).to_bytes(8, "big") + content


def _matroska(entries: list[bytes], blocks: list[bytes]) -> bytes:
    head = _element(0x1A45DFA3, _element(0x4282, b"matroska"))
    info = _element(0x1549A966, _element(0x2AD7B1, (1_000_000).to_bytes(3, "big")))
    tracks = _element(0x1654AE6B, b"".join(entries))
    clusters = b"".join(
        _element(0x1F43B675, _element(0xE7, bytes([at % 256])) + b"".join(blocks[at : at + 5000]))
        for at in range(0, len(blocks), 5000)
    )
    return head + _element(0x18538067, info + tracks + clusters)


def _sound_entry(number: int = 1) -> bytes:
    fields = [
        _element(0xD7, bytes([number])),
        _element(0x73C5, bytes([number])),
        _element(0x83, b"\2"),
        _element(0x86, b"A_OPUS"),
        _element(0x63A2, _opus_head()),
        _element(0xE1, _element(0xB5, struct.pack(">f", 48_000.0)) + _element(0x9F, b"\1")),
    ]
    return _element(0xAE, b"".join(fields))


def _picture_entry(number: int) -> bytes:
    header = struct.pack("<IiiHH4sIiiII", 40, _SIDE, _SIDE, 1, 64, b"MPNG", 0, 0, 0, 0, 0)
    size = _element(0xB0, struct.pack(">H", _SIDE)) + _element(0xBA, struct.pack(">H", _SIDE))
    fields = [
        _element(0xD7, bytes([number])),
        _element(0x73C5, bytes([number])),
        _element(0x83, b"\1"),
        _element(0x86, b"V_MS/VFW/FOURCC"),
        _element(0x63A2, header),
        _element(0xE0, size),
    ]
    return _element(0xAE, b"".join(fields))


def _block(track: int, content: bytes, at: int = 0) -> bytes:
    return _element(0xA3, bytes([0x80 | track]) + struct.pack(">hB", at % 30_000, 0x80) + content)


def picture_in_webm() -> bytes:
    """Return a WebM file with a track of video that is one large picture."""
    picture = png(_SIDE, _SIDE // 2)
    blocks = [_block(2, picture), *(_block(1, b"\xf8\xff\xfe", at) for at in range(100))]
    return _matroska([_sound_entry(), _picture_entry(2)], blocks)


def _wav(channels: int, rate_hz: int, said: int, data: bytes, kind: int = 1) -> bytes:
    each = 2 * channels % 65_536
    fmt = struct.pack("<HHIIHH", kind, channels, rate_hz, rate_hz * each % (1 << 32), each, 16)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", said) + data
    return b"RIFF" + struct.pack("<I", said) + chunks


def _rf64(said: int) -> bytes:
    wav = _wav(1, 24_000, 0xFFFFFFFF, bytes(4800))
    sizes = b"ds64" + struct.pack("<IQQQI", 28, said, said, said, 0)
    return b"RF64" + wav[4:12] + sizes + wav[12:]


def _caf(packets: int) -> bytes:
    desc = struct.pack(">d4sIIIII", 24_000.0, b"alac", 0, 0, 4096, 1, 16)
    table = struct.pack(">qqii", packets, packets * 4096, 0, 0) + b"\x01" * 1000
    chunks = b"".join(
        kind + struct.pack(">q", len(content)) + content
        for kind, content in (
            (b"desc", desc),
            (b"kuki", bytes(24)),
            (b"pakt", table),
            (b"data", bytes(1000)),
        )
    )
    return b"caff\0\1\0\0" + chunks


def _aiff(frames: int) -> bytes:
    rate = b"\x40\x0d\xbb\x80\0\0\0\0\0\0"
    common = b"COMM" + struct.pack(">IhIh", 18, 1, frames, 16) + rate
    sound = b"SSND" + struct.pack(">III", 0xFFFFFFFF, 0, 0) + bytes(4800)
    return b"FORM" + struct.pack(">I", 0xFFFFFFFF) + b"AIFF" + common + sound


def _w64(said: int) -> bytes:
    end = bytes.fromhex("f3acd3118cd100c04f8edb8a")
    riff = bytes.fromhex("726966662e91cf11a5d628db04c10000")
    fmt = struct.pack("<HHIIHH", 1, 1, 24_000, 48_000, 2, 16)
    return (
        riff
        + struct.pack("<Q", said)
        + b"wave"
        + end
        + b"fmt "
        + end
        + struct.pack("<Q", 40)
        + fmt
        + b"data"
        + end
        + struct.pack("<Q", said)
        + bytes(4800)
    )


def _flac(said: int) -> bytes:
    stream = struct.pack(">HH", 65_535, 65_535) + bytes(6)
    stream += (655_350 << 44 | 7 << 41 | 31 << 36 | said).to_bytes(8, "big") + bytes(16)
    return b"fLaC\x80" + len(stream).to_bytes(3, "big") + stream + b"\xff\xf8" + bytes(4000)


def _void(size: int) -> bytes:
    """Return a Matroska file with an element of a size that it does not have."""
    lie = b"\x63\xa2" + (1 << 56 | size).to_bytes(8, "big")
    return _matroska([_sound_entry()[:-20] + lie], [_block(1, b"\xf8\xff\xfe")])


HUGE: Mapping[str, Build] = {
    "MP4: 20 million samples": partial(index_of_samples, 20_000_000),
    "MP4: 60 million samples": partial(index_of_samples, 60_000_000),
    "MP4: 8 million samples in each of 4 tracks": partial(index_of_samples, 8_000_000, 4),
    "MP4: 2 million samples in each of 30 tracks": partial(index_of_samples, 2_000_000, 30),
    "MP4: 300 tracks": partial(index_of_samples, 1000, 300),
    "MP4: tables of 2^31 entries": partial(index_of_times, 1 << 31),
    "MP4: tables of 100 million entries": partial(index_of_times, 100_000_000),
    "MP4: a fragment of 50 million samples": partial(fragment_of_samples, 50_000_000),
    "MP4: 60,000 boxes in boxes": partial(nested_boxes, 60_000),
    "MP4: a cover of 32 megapixels": picture_in_m4a,
    "MP3: a picture of 32 megapixels": picture_in_tag,
    "FLAC: a picture of 32 megapixels": picture_in_flac,
    "FLAC: 2^36 samples of 8 channels": partial(_flac, (1 << 36) - 1),
    "Ogg: a picture of 8 megapixels": picture_in_ogg,
    "WebM: a video of 32 megapixels": picture_in_webm,
    "WebM: an element of 2^50 bytes": partial(_void, 1 << 50),
    "WebM: an element of 500 MB": partial(_void, 500_000_000),
    "WAV: 65,535 channels": lambda: _wav(65_535, 24_000, 1 << 20, bytes(1 << 20)),
    "WAV: a rate of 2^31": lambda: _wav(1, 1 << 31, 4800, bytes(4800)),
    "WAV: blocks of ADPCM of 65,535 bytes": lambda: _wav(2, 8000, 1 << 20, bytes(1 << 20), 0x11),
    "RF64: 2^62 bytes": partial(_rf64, 1 << 62),
    "Wave64: 2^62 bytes": partial(_w64, 1 << 62),
    "CAF: 2^40 packets": partial(_caf, 1 << 40),
    "CAF: 20 million packets": partial(_caf, 20_000_000),
    "AIFF: 2^32 frames": partial(_aiff, (1 << 32) - 1),
    "AU: 2^32 bytes": lambda: struct.pack(">4sIIIII", b".snd", 24, 1 << 31, 3, 8000, 65_535),
}
"""Files of less than a megabyte or two, by what they say."""


def tiny_adts(size: int) -> bytes:
    """Return ADTS frames of nine bytes: a header, and two bytes that are no sound."""
    frame = _ADTS + bytes([9 >> 3, (9 & 7) << 5 | 0x1F, 0xFC]) + b"\0\0"
    return frame * (size // len(frame))


def tiny_mp3(size: int) -> bytes:
    """Return MP3 frames of 48 bytes, 8 kbps at 24 kHz, whose side information is noise."""
    noise = np.random.default_rng(1).bytes(44)
    return (b"\xff\xf3\x14\xc4" + noise[:20] + b"\0" * (24 - 4)) * (size // 44)


def tiny_amr(size: int) -> bytes:
    """Return AMR frames of one byte: each is 20 ms without data."""
    return b"#!AMR\n" + b"\x7c" * size


def tiny_ogg(size: int, *, bare: bool = False) -> bytes:
    """Return pages of Ogg with 255 packets of Opus of a byte or two each."""
    pages, number, at = [], 2, 0
    made = 0
    while made < size:
        at += 255 * 120
        pages.append(_ogg_page([b"\xe0"] * 255, number, 0, at))
        made += len(pages[-1])
        number += 1
    return b"".join(pages) if bare else _opus(b"", b"".join(pages))


def tiny_webm(size: int) -> bytes:
    """Return blocks of WebM of one damaged byte each."""
    one = _block(1, b"\x03")
    return _matroska([_sound_entry()], [one] * (size // len(one)))


def tiny_mp4(size: int) -> bytes:
    """Return an MP4 file of PCM with a chunk for every sample, all of them at one place."""
    chunks = size // 4
    return _mp4(_track(1, _tables(chunks, chunks, 2)))


def tiny_flac(size: int) -> bytes:
    """Return heads of FLAC frames with a wrong sum, of which each is looked at as a frame."""
    stream = struct.pack(">HH", 16, 16) + bytes(6)
    stream += (24_000 << 44 | 15 << 36).to_bytes(8, "big") + bytes(16)
    head = b"fLaC\x80" + len(stream).to_bytes(3, "big") + stream
    return head + (b"\xff\xf8\x69\x08\0\x0f\0\0\0\0\0\0") * (size // 12)


def tiny_ts(size: int) -> bytes:
    """Return packets of a transport stream, a frame of nine bytes in each."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mpegts") as out:
        stream = out.add_stream("aac", rate=24_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 24_000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)
    whole = file.getvalue()
    packets = [whole[at : at + 188] for at in range(0, len(whole), 188)]
    return b"".join(packets[:3]) + packets[-1] * (size // 188)


TINY: Mapping[str, Callable[[int], bytes]] = {
    "AAC: frames of 9 bytes": tiny_adts,
    "MP3: damaged frames": tiny_mp3,
    "AMR: frames of a byte": tiny_amr,
    "Ogg: packets of a byte": tiny_ogg,
    "WebM: damaged blocks": tiny_webm,
    "MP4: a chunk a sample": tiny_mp4,
    "FLAC: heads of frames": tiny_flac,
    "MPEG-TS: a frame a packet": tiny_ts,
}
"""Files of a size, by what they are made of."""
