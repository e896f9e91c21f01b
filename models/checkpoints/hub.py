"""What a model's name means: a local path, or a file of a pinned commit on the hub."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from huggingface_hub import hf_hub_url

from models.checkpoints.download import DownloadError, NoSuchFile, fetch

CACHE: Final = "~/.cache/valle-serve"
_NAME: Final = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[^:]+))?(?::(?P<path>.+))?", re.ASCII
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_BESIDE: Final = ("config.json", "tokenizer.json")


@dataclass(frozen=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        repo: Owner and name.
        revision: The commit.
        path: Where it lies in the repository.
        sha256: Its hash; empty if only the hub's word is to be had.
        size_bytes: Its length; 0 if unknown.
        licence: What its page says; empty if unknown.
    """

    repo: str
    revision: str
    path: str
    sha256: str = ""
    size_bytes: int = 0
    licence: str = ""

    def local(self, cache: Path) -> Path:
        """Return where it lies in the cache."""
        folder = cache / "hub" / self.repo.replace("/", "--") / self.revision
        return folder.joinpath(*self.path.split("/"))


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
"""The models that go by a short name."""


def find(name: str) -> HubFile | None:
    """Return which file of the hub a name means; None for a local path.

    What exists here is local. A name is one of `PINNED`, or ``owner/name@COMMIT:path/of/file``.

    Raises:
        DownloadError: It is neither here nor pinned.
    """
    if Path(name).exists():
        return None
    if name in PINNED:
        return PINNED[name]
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    if not _COMMIT.fullmatch(found["revision"] or "") or not found["path"]:
        raise DownloadError(
            f"{name} is neither a file or folder here nor one of {', '.join(PINNED)};"
            " another model of the hub is named owner/name@COMMIT:path/of/file, with the 40"
            " digits of a commit"
        )
    if ".." in found["path"].split("/") or found["path"].startswith("/"):
        raise DownloadError(f"{name}: the path leads out of the repository")
    return HubFile(found["repo"], found["revision"], found["path"])


def locate(
    name: str, *, cache: Path = Path(CACHE), offline: bool = False, endpoint: str | None = None
) -> Path:
    """Return the local path of a model, downloading it first if it is the hub's.

    Args:
        name: As `find` reads it.
        cache: Folder of what was downloaded.
        offline: Whether the network is out of bounds.
        endpoint: Of the hub; None is the public one, or what HF_ENDPOINT names.

    Raises:
        DownloadError: It is not to be had.
    """
    wanted = find(name)
    if wanted is None:
        return Path(name)
    return obtain(wanted, cache=cache, offline=offline, endpoint=endpoint)


def obtain(
    wanted: HubFile, *, cache: Path, offline: bool = False, endpoint: str | None = None
) -> Path:
    """Return where a file of the hub lies here, downloading it first if it is not there.

    Args:
        wanted: Which one.
        cache: Folder of what was downloaded.
        offline: Whether the network is out of bounds.
        endpoint: As for `locate`.

    Raises:
        DownloadError: It is not to be had.
    """
    target = wanted.local(cache.expanduser())
    if target.is_file():
        return target
    if offline:
        raise DownloadError(f"{wanted.repo} is not at {target}, and offline nothing is downloaded")
    if target.name == "model.safetensors":  # a file in the hub's own form is described beside it
        for name_beside in _BESIDE:
            beside = replace(wanted, path=str(Path(wanted.path).with_name(name_beside)), sha256="")
            with suppress(NoSuchFile):
                _fetch(beside, target.with_name(name_beside), endpoint)
    _fetch(wanted, target, endpoint)
    return target


def _fetch(wanted: HubFile, target: Path, endpoint: str | None) -> None:
    url = hf_hub_url(wanted.repo, wanted.path, revision=wanted.revision, endpoint=endpoint)
    fetch(url, target, sha256=wanted.sha256, token=True)
