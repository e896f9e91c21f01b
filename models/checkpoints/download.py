"""Verified downloads, and the errors of failed ones."""

import logging
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError

import torch

from models.checkpoints.files import CheckpointError

log = logging.getLogger(__name__)

_REASONS = {
    401: "no such repository, or it needs a token (HF_TOKEN)",
    403: "access is not granted to this token",
    404: "there is no such file",
}


class DownloadError(CheckpointError):
    """A file cannot be downloaded; nothing is left in its place."""


class NoSuchFile(DownloadError):
    """The server has no such file."""


class Unreachable(DownloadError):
    """The server does not answer or is overloaded; a retry may help."""


def refused(url: str, status: int) -> DownloadError:
    """Return the error for an HTTP status that is not a success."""
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "no known status"
    message = f"{url}: the server answered {status}: {_REASONS.get(status, phrase)}"
    if status == HTTPStatus.NOT_FOUND:
        return NoSuchFile(message)
    return Unreachable(message) if status >= 500 or status == 429 else DownloadError(message)


def fetch(url: str, target: Path, *, sha256: str) -> None:
    """Download a file unless it exists; safe across processes.

    Args:
        url: The source.
        target: The file to write; its folder is created.
        sha256: Leading hexadecimal digits of its SHA-256.

    Raises:
        Unreachable: The server does not answer or is overloaded.
        DownloadError: It refuses, the hash differs, or the file cannot be written.
    """
    from filelock import FileLock

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{target.name}.lock")):
            if not target.is_file():
                log.info("downloading %s to %s", url, target)
                torch.hub.download_url_to_file(url, str(target), hash_prefix=sha256)
                target.chmod(0o644)
    except HTTPError as error:
        failure = refused(url, error.code)
        raise failure from error
    except (URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(f"{url}: the network failed: {reason}") from error
    except RuntimeError as error:  # the hash; nothing was kept
        raise DownloadError(
            f"{url}: its SHA-256 does not begin with {sha256}; deleted it"
        ) from error
    except OSError as error:
        raise DownloadError(f"{target}: {error.strerror or error}") from error
