"""Speech with its phonemes: read as it was written, and nothing in it is ever called."""

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.porting.eras import Pair
from lab.porting.pairs import read_pair
from models.checkpoints.files import CheckpointError
from models.checkpoints.published.load import read_public
from models.config import ModelConfig
from tests.toy import make_public as toy

CODES = np.random.default_rng(0).integers(0, 1024, (9, 8))


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    return read_public(toy.make_public(tmp_path / "toy", "ar+nar")).config


def encode(phonemes: str) -> list[int]:
    return [1, *(toy.SYMMAP.get(symbol, 0) for symbol in phonemes), 2]


def packed(stored: object) -> bytes:
    """Return what the reference writes into a file."""
    file = io.BytesIO()
    np.save(file, np.array(stored, dtype=object), allow_pickle=True)
    return file.getvalue()


def enc(**metadata: object) -> dict[str, object]:
    said = {"original_length": 1, "sample_rate": 44_100, "phonemes": "ab a", "language": "de"}
    return {"codes": CODES.T[None].astype(np.uint16), "metadata": said | metadata}


def check(pair: Pair, language: int) -> None:
    assert list(pair.phoneme_ids) == [1, 5, 6, 4, 5, 2]
    assert torch.equal(pair.codes, torch.from_numpy(CODES))
    assert pair.language == language


def test_the_references_own_format_is_read(tmp_path: Path, config: ModelConfig) -> None:
    (tmp_path / "a.enc").write_bytes(packed(enc()))
    check(read_pair(tmp_path / "a.enc", config, encode), 2)


def test_json_is_read_with_a_prompt(tmp_path: Path, config: ModelConfig) -> None:
    path = tmp_path / "a.json"
    said = {"phonemes": "ab a", "codes": CODES.tolist(), "prompt": CODES[:3].tolist()}
    path.write_text(json.dumps(said))
    pair = read_pair(path, config, encode)
    check(pair, 0)
    assert pair.prompt is not None
    assert torch.equal(pair.prompt, torch.from_numpy(CODES[:3]))


class Harm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("1 + 1",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.enc", b"", "holds no codes"),
        ("a.enc", pickle.dumps({}), "holds no codes"),
        ("a.enc", packed(enc())[:-40], r"no \.enc file|holds no codes"),
        ("a.enc", packed(enc() | {"metadata": {}}), "holds no codes"),
        ("a.enc", packed(enc(phonemes=Harm())), r"builtins\.eval is not allowed"),
        ("a.json", b"{", "holds no codes"),
        ("a.json", b"[]", "holds no codes"),
        ("a.json", b'{"phonemes": 5, "codes": []}', "holds no codes"),
        ("a.json", b'{"phonemes": "a", "codes": [[1]]}', r"shape \[1, 1\], expected \[T, 8\]"),
        ("a.json", b'{"phonemes": "a", "codes": "x"}', "no table of numbers"),
        ("a.json", b'{"phonemes": "a", "codes": [[0,0,0,0,0,0,0,1024]]}', "from 0 to 1023"),
        ("a.json", b'{"phonemes": "a", "codes": [[1]], "language": "xx"}', "not speak 'xx'"),
    ],
)
def test_what_is_no_pair_is_named_and_nothing_in_it_is_called(
    tmp_path: Path, config: ModelConfig, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_pair(tmp_path / name, config, encode)
