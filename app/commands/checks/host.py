"""What `doctor` looks at: each check says what it found, or raises what is wrong and what to do."""

import platform
import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final, get_args

from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, Doubt
from app.preset_files import read_presets
from app.settings import Settings

_OF_THE_HUB: Final = re.compile(r"[\w-][\w.-]*/[\w.-]+([@:].*)?", re.ASCII)
_ROOM_BYTES: Final = 2 * 1024**3  # a published model, the codec beside it, and as much again


def check_python(_: Settings) -> str:
    """Tell which Python runs this."""
    return platform.python_version()


def check_espeak(_: Settings) -> str:
    """Let espeak-ng read a word.

    Raises:
        CommandError: It cannot.
    """
    from models.text import phonemize

    try:
        sounds = phonemize("hello")
    except OSError as error:  # phonemizer loads a copy of the library from there
        raise CommandError(
            f"{error}; {tempfile.gettempdir()} must allow programs: mount it without noexec, or set"
            " TMPDIR to another folder"
        ) from error
    if not sounds:
        raise CommandError("espeak-ng gives no phonemes; run scripts/install again")
    return f"hello is {sounds}"


def check_model(settings: Settings) -> str:
    """Load the model, and send silence through the codec and back.

    Raises:
        CommandError: It cannot be loaded, is not what was published, or the codec is broken.
    """
    import torch

    from models.checkpoints import CheckpointError, open_speech_model

    try:
        published = _as_published(settings)
        speech = open_speech_model(
            settings.model,
            torch.device("cpu"),
            cache=Path(settings.cache),
            offline=settings.offline,
            decoder=settings.decoder,
        )
    except CheckpointError as error:
        raise CommandError(f"{error}; name another model with --model or TTS_MODEL") from error
    codec = speech.codec
    second = torch.zeros(codec.config.sample_rate_hz)
    decoded = codec.decode(codec.encode(second))
    if not torch.isfinite(decoded).all():
        raise CommandError("the codec turns silence into samples that are no numbers")
    millions = sum(weights.numel() for weights in speech.model.parameters()) / 1e6
    return (
        f"{speech.name}, {millions:.1f} M parameters, codec {codec.config.sample_rate_hz} Hz,"
        f" sha256 {speech.sha256[:12]}{published}"
    )


def _as_published(settings: Settings) -> str:
    """Return a word on whether a model of the hub is the one that was published.

    Raises:
        CommandError: It is another.
    """
    from models.checkpoints.files import sha256_of
    from models.checkpoints.hub import find

    wanted = find(settings.model)
    if wanted is None or not wanted.sha256:
        return ""
    here = wanted.local()
    if here.is_file() and sha256_of([here]) != wanted.sha256:
        raise CommandError(f"{here} is not what was published: remove it, to fetch it again")
    return ", as published"


def check_formats(_: Settings) -> str:
    """Make a file of silence in each format.

    Raises:
        CommandError: One of them cannot be made.
    """
    import numpy as np

    from app.audio.containers import contained

    silence = np.zeros(2400, np.float32)
    for form in get_args(AudioFormat):
        try:
            contained(silence, form, 24_000)
        except Exception as error:
            raise CommandError(f"{form}: {error}; run scripts/install again") from error
    return ", ".join(get_args(AudioFormat))


def check_presets(settings: Settings) -> str:
    """Read the files of presets; a PresetError says what is wrong with them."""
    return ", ".join(read_presets(settings.presets or None))


def check_keys(settings: Settings) -> str:
    """Read the keys.

    Raises:
        Doubt: Everybody on the network may use the service.
    """
    from app.api.gate.keys import Keyring

    if Keyring.of(settings):
        return "asked for"
    if settings.host not in {"127.0.0.1", "::1", "localhost"}:
        raise Doubt(
            f"none is asked for, and {settings.host} may be reached by others: make one with"
            " `valle-serve keys new NAME`"
        )
    return "none is asked for; only this machine can ask"


def check_cache(settings: Settings) -> str:
    """Write to the folder of downloads, and look for room in it.

    Raises:
        Doubt: There is little room.
    """
    free_bytes = shutil.disk_usage(_writable(settings.cache, "TTS_CACHE")).free
    folder = Path(settings.cache).expanduser()
    if free_bytes < _ROOM_BYTES:
        raise Doubt(
            f"{folder} has {free_bytes / 1e9:.1f} GB left, and a published model takes about 1:"
            " make room or set TTS_CACHE"
        )
    return f"{folder}, {free_bytes / 1e9:.0f} GB left"


def check_voices(settings: Settings) -> str:
    """Write to the folder of uploaded voices."""
    _writable(settings.voices, "TTS_VOICES")
    return str(Path(settings.voices).expanduser())


def _writable(name: str, setting: str) -> Path:
    """Write to a folder, or where it would be made; return which of the two it was.

    Raises:
        CommandError: None can be.
    """
    folder = Path(name).expanduser()
    there = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return there
    except OSError as error:
        raise CommandError(
            f"{folder}: {error.strerror}; make it writable or set {setting}"
        ) from error


def check_port(settings: Settings) -> str:
    """Listen for a moment.

    Raises:
        CommandError: Another program does, or there is no such address here.
    """
    host, port = settings.host, settings.port
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return f"{host}:{probe.getsockname()[1]} is free"
    except OSError as error:
        raise CommandError(
            f"port: {host}:{port}: {error.strerror}; free it, or set TTS_HOST or TTS_PORT"
        ) from error


def check_there(model: str) -> None:
    """Find out, without loading anything, whether a name can be one of a model.

    Raises:
        CommandError: It is the path of nothing.
    """
    if not Path(model).exists() and not _OF_THE_HUB.fullmatch(model):
        raise CommandError(
            f"model: {model} does not exist; TTS_MODEL names a folder, a file, or a model of the"
            " hub like ecker/vall-e"
        )
