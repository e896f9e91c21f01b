"""Files from the network: whole and verified, or not at all.

What has arrived lies in ``NAME.partial`` until its hash is right; a later call goes on from there.
Requests, redirects, retries and the progress bar are `huggingface_hub`'s.
"""

import errno
import hashlib
import logging
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from filelock import FileLock
from huggingface_hub import HfFileMetadata, get_hf_file_metadata, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import http_get

from models.checkpoints.files import CheckpointError

log = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHA256_DIGITS = 64
_REASONS = {
    401: "no such repository, or it needs a token (HF_TOKEN)",
    403: "access is not granted to this token",
    404: "there is no such file",
}


class DownloadError(CheckpointError):
    """A file cannot be had; nothing was put in its place."""


class NoSuchFile(DownloadError):
    """The server has no such file."""


def fetch(url: str, target: Path, *, sha256: str = "", token: bool = False) -> None:
    """Download a file unless it is there already.

    Args:
        url: Where it is.
        target: Where it shall lie; its folder is made.
        sha256: Hexadecimal beginning of its hash; if empty, the one that the hub names is used.
        token: Whether the server may get the user's token of the hub; never sent past a redirect
            to another host.

    Raises:
        NoSuchFile: The server has none by that name.
        DownloadError: The server does not answer or refuses, the hash is another, or the disk is
            full.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{target.name}.lock")):
            if target.is_file():
                return
            log.info("downloading %s to %s", url, target)
            remote = get_hf_file_metadata(url, token=None if token else False)
            _complete(url, remote, partial, token=token)
            _check(partial, sha256 or _published_hash(remote), url)
            partial.replace(target)
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = _REASONS.get(status, error.response.reason_phrase)
        kind = NoSuchFile if status == 404 else DownloadError
        raise kind(f"{url}: the server answered {status}: {reason}") from error
    except OfflineModeIsEnabled as error:
        raise DownloadError(f"{url}: HF_HUB_OFFLINE forbids to download it") from error
    except httpx2.HTTPError as error:
        kept = f"; {partial} is kept, the next start goes on from there"
        raise DownloadError(
            f"{url}: the network failed: {error or type(error).__name__}"
            f"{kept if partial.is_file() else ''}"
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            partial.unlink(missing_ok=True)
        raise DownloadError(f"{target}: {error.strerror or error}") from error


def _complete(url: str, remote: HfFileMetadata, partial: Path, *, token: bool) -> None:
    """Download what is missing of a file.

    Raises:
        OSError: The disk is full, or the file is not as long as the server said.
    """
    same_host = urlsplit(remote.location).netloc == urlsplit(url).netloc
    secret = get_token() if token and same_host else None
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    with partial.open("ab") as file:
        there = file.tell()
        if remote.size is None or there > remote.size:
            there = file.truncate(0)
        missing = (remote.size or 0) - there
        free = shutil.disk_usage(partial.parent).free
        if missing > free:
            raise OSError(
                errno.ENOSPC, f"{missing:,} more bytes are needed, the disk has {free:,} left"
            )
        http_get(
            remote.location,
            file,
            resume_size=there,
            headers=headers,
            expected_size=remote.size,
            displayed_filename=partial.stem,
        )


def _published_hash(remote: HfFileMetadata) -> str:
    """Return the SHA-256 that the hub names a large file by; nothing for a small one."""
    etag = remote.etag or ""
    return etag if len(etag) == _SHA256_DIGITS else ""


def _check(partial: Path, expected: str, url: str) -> None:
    """Compare the hash of what was downloaded; delete it if it is wrong.

    Raises:
        DownloadError: It is another.
    """
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(expected):
        partial.unlink()
        raise DownloadError(f"{url}: SHA-256 is {found}, expected {expected}; deleted it")
