"""Checks of the host before a start: each returns what it found, or raises with a fix."""

import re
import resource
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from app.commands.errors import CheckWarning, CommandError
from app.settings import Settings

_HUB_NAME: Final = re.compile(r"[\w-][\w.-]*/[\w.-]+([@:].*)?", re.ASCII)
_OTHER_FILES: Final = 96
"""Open files beside connections: 32 of probes, pipes, the log, voices that are read."""

_MOST_FILES: Final = 65_536


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
            owners = open_voice_store(
                settings.voices, settings.max_voices, earlier=settings.earlier_voices
            ).owners()
        except UnknownStore as error:
            raise CommandError(f"voices: {error}") from error
        except OSError as error:
            raise CheckWarning(f"{settings.voices}: {error.strerror}") from error
        return f"{settings.voices}, of {len(owners)} owners"
    writable(settings.voices, "TTS_VOICES")
    earlier = settings.earlier_voices and settings.earlier_voices.expanduser()
    before = f", and in {earlier} those of before" if earlier and earlier.is_dir() else ""
    return f"{Path(settings.voices).expanduser()}{before}"


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
    """Bind the ports of the service for a moment, all at once."""
    host = settings.host
    free = list[str]()
    with ExitStack() as bound:
        for name in ("port", "wyoming_port"):
            port: int = getattr(settings, name)
            if not port and name == "wyoming_port":
                continue  # it is off
            if name == "wyoming_port" and port == settings.port:
                raise CommandError(f"{name}: {port} is the port of HTTP; set another")
            try:
                probe = bound.enter_context(_bound(host, port))
            except OSError as error:
                raise CommandError(
                    f"{name}: {host}:{port}: {error.strerror}; free it, or set TTS_HOST or"
                    f" TTS_{name.upper()}"
                ) from error
            free.append(f"{host}:{probe.getsockname()[1]}")
    return f"{' and '.join(free)} {'is' if len(free) == 1 else 'are'} free"


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address and does not listen; raises OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    probe = socket.socket(family)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    except OSError:
        probe.close()
        raise
    return probe


def check_open_files(settings: Settings) -> str:
    """Raise the soft limit of open files to the hard one, and compare it with the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    files = max(soft, most)
    needed = settings.max_connections + _OTHER_FILES
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
