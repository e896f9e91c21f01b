"""Codes that ship with a voice are used under the codec they belong to, and under no other."""

from pathlib import Path

import pytest
import torch

from models.codecs.shipped_codes import (
    SUFFIX,
    codec_digest,
    read_codes,
    write_codes,
)
from models.voices.voice import BuiltinVoices, PromptCodes
from tests.models.voices.test_voice import CountingCodec, write

CPU = torch.device("cpu")
CODES = torch.arange(40).reshape(5, 8)


def test_a_digest_tells_codecs_apart_by_their_weights() -> None:
    assert codec_digest(CountingCodec(1.0)) == codec_digest(CountingCodec(1.0))
    assert codec_digest(CountingCodec(1.0)) != codec_digest(CountingCodec(2.0))


def test_codes_come_back_under_their_own_digest_only(tmp_path: Path) -> None:
    path = tmp_path / "a.codes.safetensors"
    write_codes(path, CODES, "one")
    found = read_codes(path, "one")
    assert found is not None
    assert found.dtype == torch.int64
    assert torch.equal(found, CODES)
    assert read_codes(path, "another") is None
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_voice_prompts_with_the_codes_it_ships_under_its_own_codec(tmp_path: Path) -> None:
    codec, other = CountingCodec(1.0), CountingCodec(2.0)
    audio = write(tmp_path / "voices" / "a.flac")
    write_codes(audio.with_suffix(SUFFIX), CODES, codec_digest(codec))
    voice = BuiltinVoices(tmp_path / "voices")["a"]
    shipped = PromptCodes(codec, CPU, max_frames=3).of(voice)
    assert shipped is not None
    assert torch.equal(shipped, CODES[:3])
    encoded = PromptCodes(other, CPU, max_frames=3).of(voice)
    assert encoded is not None
    assert not encoded.any()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    audio = write(tmp_path / "voices" / "a.flac")
    path = audio.with_suffix(SUFFIX)
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=path.name):
        read_codes(path, "one")
    voice = BuiltinVoices(tmp_path / "voices")["a"]
    with pytest.raises(ValueError, match=path.name):
        PromptCodes(CountingCodec(1.0), CPU, max_frames=3).of(voice)
