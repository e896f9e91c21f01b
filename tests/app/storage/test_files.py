"""Files that are whole or not there."""

import errno
import os

import pytest

from app.storage.files import write_atomically


def test_a_file_is_replaced_and_no_other_is_left(tmp_path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"before")
    write_atomically(path, b"after")
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_what_lies_where_it_is_written_first_is_not_written_through(tmp_path) -> None:
    path, other = tmp_path / "one.json", tmp_path / "other"
    other.write_bytes(b"another's")
    (tmp_path / "one.json.partial").symlink_to(other)
    path.symlink_to(other)
    write_atomically(path, b"after")
    assert (path.read_bytes(), other.read_bytes()) == (b"after", b"another's")
    assert not path.is_symlink()


def test_what_cannot_be_written_leaves_the_file_that_was_there(tmp_path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"before")
    (tmp_path / "one.json.partial").mkdir()  # where it would be written first
    with pytest.raises(OSError, match="partial"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"


def test_a_full_disk_keeps_no_part_of_a_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "one.flac"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, bytes(100_000))
    assert not list(tmp_path.iterdir())
