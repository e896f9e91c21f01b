"""Verified downloads: pinned files of the Hugging Face hub by the names of models, and of URLs.

Files of the hub are stored in the user's hub cache, which other programs share. `huggingface_hub`
downloads and resumes, and reads HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE.
"""

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError

import torch

from models.checkpoints.files import CheckpointError, sha256_of

MODEL_CACHE: Final = "~/.cache/valle-serve"
"""Default folder of converted codecs and machine code."""

_SHA256_DIGITS: Final = 64
_NAME: Final = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[^:]+))?(?::(?P<path>.+))?", re.ASCII
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_BESIDE: Final = ("config.json", "tokenizer.json")
_REASONS = {
    401: "no such repository, or it needs a token (HF_TOKEN)",
    403: "access is not granted to this token",
    404: "there is no such file",
}

log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class HubFile:
    """A file of a repository at one commit."""

    repo: str  # `owner/name`
    revision: str
    path: str
    sha256: str = ""  # expected hash; empty to rely on the hub's own
    size_bytes: int = 0  # length; 0 if unknown
    licence: str = ""  # as stated on its page; empty if unknown

    def local(self) -> Path:
        """Return its path in the user's hub cache, whether or not it exists."""
        from huggingface_hub import constants

        folder = Path(constants.HF_HUB_CACHE) / f"models--{self.repo.replace('/', '--')}"
        return folder.joinpath("snapshots", self.revision, *self.path.split("/"))


PINNED: Final = {
    "ecker/vall-e": HubFile(
        repo="ecker/vall-e",
        revision="cf337d0eff97851f6210c68551f9f26778b69590",
        path="models/ckpt/ar+nar-len-llama-8/ckpt/fp32.sft",
        sha256="43c6b7df2d66937971714a87432f6fedbd3e5531bd8401f3a0fe6f7599e89b43",
        size_bytes=458_419_568,
        licence="AGPL-3.0",
    ),
    "ecker/vall-e:ar+nar": HubFile(
        repo="ecker/vall-e",
        revision="1ea585e33f52aac579eada7912eebdb0a2d4cb36",
        path="models/ckpt/ar+nar-llama-8/fp32.sft",
        sha256="0920e7eef0884631f00513b700924538db0853d662530e4bcf7ac1d8666430b6",
        size_bytes=456_274_402,
        licence="AGPL-3.0",
    ),
}
"""Models with a short name."""

UNPINNED: Final = {
    "Plachta/VALL-E-X": HubFile(
        repo="Plachta/VALL-E-X",
        revision="main",
        path="vallex-checkpoint.pt",
        licence="MIT",
    ),
}
"""The same of files that could not be seen when this was written: whatever comes first is kept."""


def find(name: str) -> HubFile | None:
    """Return the file of the hub that a name means, or None for a local path.

    Whatever exists locally is local. Other names are one of `PINNED` or
    ``owner/name@COMMIT:path/of/file``; raises DownloadError for a repository without commit or
    path.
    """
    if Path(name).exists():
        return None
    if name in PINNED or name in UNPINNED:
        return PINNED.get(name) or UNPINNED[name]
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    if not _COMMIT.fullmatch(found["revision"] or "") or not found["path"]:
        raise DownloadError(
            f"{name} is neither a file or folder here nor one of"
            f" {', '.join([*PINNED, *UNPINNED])};"
            " another model of the hub is named owner/name@COMMIT:path/of/file, with the 40"
            " digits of a commit"
        )
    if ".." in found["path"].split("/") or found["path"].startswith("/"):
        raise DownloadError(f"{name}: the path leads out of the repository")
    return HubFile(found["repo"], found["revision"], found["path"])


def locate(
    name: str,
    *,
    cache: Path = Path(MODEL_CACHE),
    offline: bool = False,
    endpoint: str | None = None,
) -> Path:
    """Return the local path of a model, as `find` reads its name, downloading it if needed.

    The endpoint is the hub's URL; None is HF_ENDPOINT or the public one. Of a file that nobody
    pinned, commit and hash are kept in ``cache``.
    """
    wanted = find(name)
    if wanted is None:
        return Path(name)
    if not _COMMIT.fullmatch(wanted.revision):
        kept = cache.expanduser() / "first-seen" / f"{wanted.repo.replace('/', '--')}.json"
        return obtain_first(wanted, kept, offline=offline, endpoint=endpoint)
    return obtain(wanted, offline=offline, endpoint=endpoint)


def obtain(wanted: HubFile, *, offline: bool = False, endpoint: str | None = None) -> Path:
    """Return the local path of a file of the hub, downloading it unless ``offline``.

    Raises DownloadError if the file is unavailable or its hash differs.
    """
    if offline and not wanted.local().is_file():
        raise DownloadError(
            f"{wanted.repo} is not at {wanted.local()}, and offline nothing is downloaded"
        )
    # The hub's own format keeps its description in files beside the weights.
    if Path(wanted.path).name == "model.safetensors" and not wanted.local().is_file():
        for name_beside in _BESIDE:
            beside = replace(wanted, path=str(Path(wanted.path).with_name(name_beside)), sha256="")
            with suppress(NoSuchFile):
                _download(beside, endpoint)
    path = _download(wanted, endpoint, offline=offline)
    _check(wanted, path)
    return path


def obtain_first(
    wanted: HubFile, kept: Path, *, offline: bool = False, endpoint: str | None = None
) -> Path:
    """As `obtain`, of a file whose commit and hash are those of its first download.

    They are written to ``kept``, and told. Raises DownloadError if a later file differs, or what
    is kept cannot be read or written.
    """
    try:
        if kept.is_file():
            seen = json.loads(kept.read_text())
            again = replace(wanted, revision=seen["commit"], sha256=seen["sha256"])
            return obtain(again, offline=offline, endpoint=endpoint)
        if offline:
            raise DownloadError(f"{wanted.repo} was never downloaded, and offline nothing is")
        path = _download(wanted, endpoint)
        _check(wanted, path)
        depth = wanted.path.count("/") + 1
        commit = path.parents[depth - 1].name
        sha256 = sha256_of([path])
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"commit": commit, "sha256": sha256}) + "\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise DownloadError(f"{kept}: {error}") from error
    log.warning(
        "%s is at commit %s, SHA-256 %s. Nobody pinned it: compare it with what others have. It is"
        " kept in %s, and every later start compares the file with it",
        wanted.repo, commit, sha256, kept,
    )  # fmt: skip
    return path


def _download(wanted: HubFile, endpoint: str | None, *, offline: bool = False) -> Path:
    """Return the local path of a file, downloaded unless it is cached."""
    import httpx2
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    where = f"{wanted.repo}, {wanted.path}"
    try:
        return Path(
            hf_hub_download(
                wanted.repo,
                wanted.path,
                revision=wanted.revision,
                local_files_only=offline,
                endpoint=endpoint,
                library_name="valle-serve",
            )
        )
    except HfHubHTTPError as error:
        failure = refused(where, error.response.status_code)
        raise failure from error
    except LocalEntryNotFoundError as error:  # also raised if the hub did not answer
        failure = _unanswered(where, error.__cause__ or error)
        raise failure from error
    except httpx2.HTTPError as error:
        failure = _unanswered(where, error)
        raise failure from error
    except OSError as error:
        raise DownloadError(f"{constants.HF_HUB_CACHE}: {error.strerror or error}") from error


def _unanswered(where: str, why: BaseException) -> DownloadError:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(why, OfflineModeIsEnabled):
        return DownloadError(f"{where}: HF_HUB_OFFLINE forbids to download it")
    if isinstance(why, HfHubHTTPError):
        return refused(where, why.response.status_code)
    return Unreachable(f"{where}: the network failed: {why or type(why).__name__}")


def _check(wanted: HubFile, path: Path) -> None:
    """Compare a file with its pinned hash, else with the hash that the hub names its blob by."""
    blob = path.resolve()
    expected = wanted.sha256 or (blob.name if len(blob.name) == _SHA256_DIGITS else "")
    if not expected:
        return
    try:
        found = sha256_of([blob])
        if found != expected:
            path.unlink()
            blob.unlink(missing_ok=True)
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from error
    if found != expected:
        raise DownloadError(f"{path}: SHA-256 is {found}, expected {expected}; deleted it")


def fetch(url: str, target: Path, *, sha256: str) -> None:
    """Download a file whose SHA-256 begins with ``sha256``, once; safe across processes.

    Raises Unreachable if the server does not answer or is overloaded, DownloadError if it refuses,
    the hash differs, or the file cannot be written.
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
