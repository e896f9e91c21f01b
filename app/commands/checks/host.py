"""Checks of the host: each returns what it found, or raises with a fix."""

import platform
import re
import resource
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final, get_args

from app.audio.formats import AudioFormat
from app.commands.errors import CheckWarning, CommandError
from app.settings import Settings
from app.storage.preset_files import read_presets

_HUB_NAME: Final = re.compile(r"[\w-][\w.-]*/[\w.-]+([@:].*)?", re.ASCII)
_ASK_S: Final = 5.0
_OTHER_FILES: Final = 96
"""Open files beside connections: 32 of probes, pipes, the log, voices that are read."""

_MOST_FILES: Final = 65_536
_NEEDED_BYTES: Final = 2 * 1024**3  # twice a published model and its codec


def check_python(_: Settings) -> str:
    """Return the Python version."""
    return platform.python_version()


def check_espeak(_: Settings) -> str:
    """Phonemize a word with espeak-ng."""
    from models.text import phonemize

    try:
        sounds = phonemize("hello")
    except OSError as error:  # phonemizer loads a copy of the library from the temporary folder
        raise CommandError(
            f"{error}; {tempfile.gettempdir()} must allow programs: mount it without noexec, or set"
            " TMPDIR to another folder"
        ) from error
    if not sounds:
        raise CommandError("espeak-ng gives no phonemes; run scripts/install again")
    return f"hello is {sounds}"


def check_model(settings: Settings) -> str:
    """Load the model, and encode and decode silence with its codec."""
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
        raise CommandError("the codec decodes silence to samples that are not finite")
    millions = sum(weights.numel() for weights in speech.model.parameters()) / 1e6
    return (
        f"{speech.name}, {millions:.1f} M parameters, codec {codec.config.sample_rate_hz} Hz,"
        f" sha256 {speech.sha256[:12]}{published}"
    )


def _as_published(settings: Settings) -> str:
    """Compare a model of the hub with its published hash; return a note on the result."""
    from models.checkpoints.files import sha256_of
    from models.checkpoints.hub import find

    wanted = find(settings.model)
    if wanted is None or not wanted.sha256:
        return ""
    here = wanted.local()
    if here.is_file() and sha256_of([here]) != wanted.sha256:
        raise CommandError(f"{here} differs from the published file: remove it to fetch it again")
    return ", as published"


def check_formats(_: Settings) -> str:
    """Encode silence in each audio format."""
    import numpy as np

    from app.audio.rendering import encode_file

    silence = np.zeros(2400, np.float32)
    for form in get_args(AudioFormat):
        try:
            encode_file(silence, form, 24_000)
        except Exception as error:
            raise CommandError(f"{form}: {error}; run scripts/install again") from error
    return ", ".join(get_args(AudioFormat))


def check_presets(settings: Settings) -> str:
    """Read the preset files; a PresetError says what is wrong with them."""
    return ", ".join(read_presets(settings.presets or None))


def check_keys(settings: Settings) -> str:
    """Read the API keys."""
    from app.api.gate.admission import Keyring

    if Keyring.of(settings):
        return "required"
    if settings.host not in {"127.0.0.1", "::1", "localhost"}:
        raise CheckWarning(
            f"none is required, and others may reach {settings.host}: generate one with"
            " `valle-serve keys new NAME`"
        )
    return "none is required; only this machine can connect"


def check_cache(settings: Settings) -> str:
    """Check that the download folder is writable and has space."""
    free_bytes = shutil.disk_usage(writable(settings.cache, "TTS_CACHE")).free
    folder = Path(settings.cache).expanduser()
    if free_bytes < _NEEDED_BYTES:
        raise CheckWarning(
            f"{folder} has {free_bytes / 1e9:.1f} GB free, and a published model takes about 1:"
            " free some or set TTS_CACHE"
        )
    return f"{folder}, {free_bytes / 1e9:.0f} GB free"


def check_state(settings: Settings) -> str:
    """Ask the Redis that is shared whether it answers."""
    if settings.state_url is None:
        return "in memory, of this process alone"
    from app.storage.shared_state import StateAway, StateRefused, ask

    try:
        ask(settings.state_url)
    except StateRefused as error:
        raise CommandError(f"state: Redis refuses us: {error}; correct TTS_STATE") from error
    except ValueError as error:
        raise CommandError(f"state: {error}") from error
    except StateAway as error:
        raise CheckWarning(f"Redis does not answer: {error}") from error
    return "Redis answers"


def check_voices(settings: Settings) -> str:
    """Check that the folder of uploaded voices is writable, or that their store answers."""
    if "://" in settings.voices:
        from app.storage.files import UnknownStore
        from app.storage.voice_store import open_voice_store

        try:
            owners = open_voice_store(settings.voices, settings.max_voices).owners()
        except UnknownStore as error:
            raise CommandError(f"voices: {error}") from error
        except OSError as error:
            raise CheckWarning(f"{settings.voices}: {error.strerror}") from error
        return f"{settings.voices}, of {len(owners)} owners"
    writable(settings.voices, "TTS_VOICES")
    return str(Path(settings.voices).expanduser())


def writable(name: str, setting: str) -> Path:
    """Check that a folder, or its closest existing parent, is writable, and return that."""
    folder = Path(name).expanduser()
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return existing
    except OSError as error:
        raise CommandError(
            f"{folder}: {error.strerror}; make it writable or set {setting}"
        ) from error


def check_port(settings: Settings) -> str:
    """Bind the port for a moment."""
    host, port = settings.host, settings.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return f"{host}:{probe.getsockname()[1]} is free"
    except OSError as error:
        raise CommandError(
            f"port: {host}:{port}: {error.strerror}; free it, or set TTS_HOST or TTS_PORT"
        ) from error


def check_port_or_service(settings: Settings) -> str:
    """Bind the port for a moment, or find a valle-serve that answers there."""
    try:
        return check_port(settings)
    except CommandError:
        host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host
        url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
        version = _version_at(url)
        if version is None:
            raise
        return f"a valle-serve {version} answers at {url}"


def _version_at(url: str) -> str | None:
    """Return the version of the service at a URL; None if no valle-serve answers there."""
    import httpx2

    try:
        about = httpx2.get(f"{url}/openapi.json", timeout=_ASK_S, trust_env=False).json()["info"]
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        return None
    return str(about["version"]) if about.get("title") == "valle-serve" else None


def check_open_files(settings: Settings) -> str:
    """Raise the soft limit of open files to the hard one, and compare it with the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    files, needed = max(soft, most), settings.max_connections + _OTHER_FILES
    if files < needed:
        raise CommandError(
            f"at most {files} files may be open, and {settings.max_connections} connections need"
            f" {needed}: raise the limit (ulimit -Hn), or lower TTS_MAX_CONNECTIONS"
        )
    return f"{files} files may be open, {needed} are needed"


def check_model_path(model: str) -> None:
    """Check, loading nothing, that a model is an existing path or a name of the hub."""
    if not Path(model).exists() and not _HUB_NAME.fullmatch(model):
        raise CommandError(
            f"model: {model} does not exist; TTS_MODEL names a folder, a file, or a model of the"
            " hub like ecker/vall-e"
        )
