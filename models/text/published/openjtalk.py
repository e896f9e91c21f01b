"""Japanese as Plachtaa/VALL-E-X was trained on it: phonemes and accents of Open JTalk's labels.

pyopenjtalk is a package of the extra `vallex`. Where accents rise and fall follows from the places
of a mora in its accent phrase, which a label tells: after Kurihara, Seiyama and Kumano, "Prosodic
features control by symbols as input of sequence-to-sequence acoustic modeling for neural TTS",
IEICE Transactions on Information and Systems E104-D (2021).
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import os
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from models.text.errors import TextError
from models.text.published.wide_marks import plain_marks
from models.text.published.wide_reader import wide_reader
from models.text.reader import Reader

if TYPE_CHECKING:
    from pyopenjtalk.openjtalk import OpenJTalk

DICTIONARY: Final = Path("/var/lib/mecab/dic/open-jtalk/naist-jdic")
"""Where Debian's package has it, unless the environment's OPEN_JTALK_DICT_DIR names another."""

_SPOKEN: Final = re.compile("[A-Za-z\\d々\u3040-\u30ff一-鿿Ａ-Ｚａ-ｚ\uff66-\uff9d]+")
_LABEL: Final = re.compile(
    r"-(?P<phone>[^+]*)\+.*/A:(?P<from_accent>-?\d+|xx)\+(?P<place>\d+|xx)\+(?P<left>\d+|xx)"
    r".*/F:(?P<moras>\d+|xx)_"
)
_PAUSES: Final = frozenset(("sil", "pau"))
_KANJI: Final = re.compile("[㐀-鿿豈-﫿]")
_POINT: Final = re.compile(r"(?<=\d)\.(?=\d)")
_ACCENT: Final = "[↑↓]*"
# Labels have a small tsu as `cl` and a syllabic n as N; each sounds as what follows it.
_ASSIMILATED: Final = (
    (f"Q(?={_ACCENT}[kg])", "k#"), (f"Q(?={_ACCENT}[tdj])", "t#"), (f"Q(?={_ACCENT}[sʃ])", "s"),
    (f"Q(?={_ACCENT}[pb])", "p#"), (f"N(?={_ACCENT}[pbm])", "m"), (f"N(?={_ACCENT}(?:tʃ|j))", "n^"),
    (f"N(?={_ACCENT}[tdn])", "n"), (f"N(?={_ACCENT}[kg])", "ŋ"),
)  # fmt: skip
_SOUNDS: Final = (
    ("u", "ɯ"), ("j", "dʑ"), ("y", "j"), ("ni", "n^i"), ("nj", "n^"), ("hi", "çi"), ("hj", "ç"),
    ("f", "ɸ"), ("I", "i*"), ("U", "ɯ*"), ("r", "ɾ"),
)  # fmt: skip


class _Phone(NamedTuple):
    phone: str
    from_accent: int  # moras from the accent of the phrase, 0 at it
    place: int  # of the mora in its phrase, from 1
    left: int  # moras to the end of the phrase, 1 at it
    moras: int  # of the phrase


_NO_PHRASE: Final = -50


_OPEN_JTALK: Final = Lock()


@cache
def _open_jtalk() -> "OpenJTalk":
    """Load Open JTalk and its dictionary; call with the lock held. Raises TextError."""
    try:
        from pyopenjtalk.openjtalk import OpenJTalk
    except ImportError as error:
        raise TextError(
            f"Japanese cannot be read here: {error.name} is not installed; scripts/install vallex"
        ) from error
    folder = Path(os.environ.get("OPEN_JTALK_DICT_DIR") or DICTIONARY)
    if not (folder / "sys.dic").is_file():
        raise TextError(
            f"Japanese cannot be read here: there is no dictionary in {folder}; apt-get install"
            " open-jtalk-mecab-naist-jdic, or set OPEN_JTALK_DICT_DIR"
        )
    # Not by the package's own functions, which would fetch a dictionary while a text is read.
    return OpenJTalk(dn_mecab=os.fsencode(folder))


def japanese_reader(*, as_reference: bool = False) -> Reader:
    """Return the reader of Japanese; ``as_reference`` with all that the reference does not read.

    Raises TextError if Open JTalk or its dictionary is not installed.
    """
    with _OPEN_JTALK:
        _open_jtalk()
    return wide_reader(
        "ja",
        japanese_phonemes,
        lambda text: _POINT.sub("点", text).replace("%", "％"),
        _unread,
        as_reference=as_reference,
    )


def _unread(text: str) -> list[str]:
    """Return the kanji of a text that have no reading."""
    with _OPEN_JTALK:
        found = [one for one in dict.fromkeys(text) if _KANJI.match(one)]
        return [one for one in found if _open_jtalk().run_frontend(one)[0]["pron"] == "、"]


def japanese_phonemes(text: str) -> str:
    """Return the phonemes of a Japanese text with its accents; what is not spoken stays."""
    text = text.replace("％", "パーセント")
    found = ""
    at = 0
    for match in _SPOKEN.finditer(text):
        found += text[at : match.start()]
        with _OPEN_JTALK:
            labels = _open_jtalk().make_label(_open_jtalk().run_frontend(match[0]))
        found += f"{' ' if found else ''}{accented(labels)}"
        at = match.end()
    return plain_marks(found + text[at:])


def accented(labels: Sequence[str]) -> str:
    """Return the phonemes of the labels of a phrase, in the model's symbols, with accents.

    ↑ is behind the first mora where the pitch rises, ↓ where it falls; a space is between accent
    phrases.
    """
    phones = [_read(label) for label in labels]
    text = ""
    for one, following in pairwise(phones):
        if one.phone in _PAUSES:
            continue
        text += {"ch": "tʃ", "sh": "ʃ", "cl": "Q"}.get(one.phone, one.phone)
        place = -1 if following.phone in _PAUSES else following.place
        if one.left == 1 and place == 1:
            text += " "
        elif one.from_accent == 0 and place == one.place + 1 and one.place != one.moras:
            text += "↓"
        elif one.place == 1 and place == 2:
            text += "↑"
    for pattern, spoken in _ASSIMILATED:
        text = re.sub(pattern, spoken, text)
    for romaji, sound in _SOUNDS:
        text = text.replace(romaji, sound)
    return text


def _read(label: str) -> _Phone:
    match = _LABEL.search(label)
    assert match is not None, label
    numbers = (
        _NO_PHRASE if match[name] == "xx" else int(match[name])
        for name in ("from_accent", "place", "left", "moras")
    )
    return _Phone(match["phone"], *numbers)
