"""Whatever an operator names becomes a model that speaks, or an error that says why not."""

from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import torch

from app.engine.admission.playback import Playback
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import AudioChunk, ReadingOptions, SpeechJob
from app.engine.errors import InvalidRequest
from app.engine.results import Samples
from app.settings import BUILTIN_MODEL
from lab.porting.convert import convert
from models.checkpoints.encodec import OFFICIAL_URL, official_file
from models.checkpoints.files import CheckpointError, write_tensors
from models.checkpoints.hub import PINNED, HubFile
from models.checkpoints.sources import VOICES, DecoderName, open_speech_model
from models.checkpoints.vocos import converted_file, vocos_file
from models.codecs.encodec import Encodec
from models.codecs.vocos import Vocos
from models.config import CodecConfig, VocosConfig
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of
from tests.models.checkpoints.hub_server import COMMIT
from tests.toy.make_public import Form, make_public
from tests.toy.make_toy import make as make_toy

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with an EnCodec of the official shape and random weights."""
    cache = tmp_path_factory.mktemp("cache")
    folder = cache / "encodec"
    folder.mkdir()
    torch.manual_seed(0)
    codec = Encodec(CodecConfig())
    codec.quantizer.codebooks.normal_(0, 0.2)
    name = OFFICIAL_URL.rpartition("/")[2].replace(".th", ".safetensors")
    write_tensors(folder / name, codec.state_dict(), dtype=None)
    assert official_file(cache, offline=True) == folder / name
    return cache


@pytest.fixture(scope="module")
def vocos_cache(cache: Path) -> Path:
    """The same, with a Vocos of the published shape and random weights."""
    vocos = Vocos(VocosConfig())
    vocos.codebooks.normal_(0, 0.2)
    path = converted_file(cache)
    path.parent.mkdir(parents=True)
    write_tensors(path, vocos.state_dict(), dtype=None)
    assert vocos_file(cache, offline=True) == path
    return cache


def load(model: str | Path, cache: Path, decoder: DecoderName = "codec") -> Synthesizer:
    return Synthesizer.load(
        settings_of(model, max_text_chars=200, cache=str(cache), offline=True, decoder=decoder)
    )


def speech(synthesizer: Synthesizer, text: str = "[[ab äb]]", language: str = "en") -> str:
    """Return the hash of the codes of 0.2 s."""
    result = spoken(synthesizer, text, language)[-1].result
    assert result is not None
    assert result.frames > 0
    return result.codes_sha256


def spoken(
    synthesizer: Synthesizer, text: str = "[[ab äb]]", language: str = "en"
) -> list[AudioChunk]:
    job = SpeechJob(
        id="test",
        text=text,
        reading=ReadingOptions(language),
        max_duration_s=0.2,
        params=SamplingParams(seed=1),
    )
    return list(synthesizer.speak(synthesizer.planner.plan(job)))


def sound(chunks: Iterable[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["ar+nar", "ar+nar-len", "hf"])
def test_a_published_folder_and_what_it_is_converted_to_speak_alike_with_a_built_in_voice(
    form: Form, tmp_path: Path, cache: Path
) -> None:
    file = make_public(tmp_path / "published", form)
    convert(file, tmp_path / "ours")
    assert speech(load(file.parent, cache)) == speech(load(tmp_path / "ours", cache))
    assert VOICES == BUILTIN_MODEL


@pytest.mark.slow
def test_a_name_of_the_hub_is_read_from_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = HubFile("some/model", COMMIT, "ckpt/fp32.sft")
    monkeypatch.setitem(PINNED, "some/model", pinned)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    file = make_public(pinned.local().parent, "ar+nar-len")
    assert speech(load("some/model", cache)) == speech(load(file, cache))


@pytest.mark.slow
def test_the_checkpoints_own_tokenizer_and_languages_are_used(tmp_path: Path, cache: Path) -> None:
    synthesizer = load(make_public(tmp_path, "ar+nar"), cache)
    assert synthesizer.info.languages == ("en", "ja", "de", "fr", "zh", "ko")
    assert speech(synthesizer, "[[ab]]") == speech(synthesizer, "[[äb]]")
    assert speech(synthesizer, "Guten Tag.", "de") != speech(synthesizer, "Guten Tag.", "fr")
    with pytest.raises(InvalidRequest, match=r"German only, not привет \(Cyrillic\)") as refused:
        speech(synthesizer, "привет", "de")
    assert refused.value.param == "input"
    with pytest.raises(InvalidRequest, match="unknown symbols in inline phonemes: 'q'"):
        speech(synthesizer, "[[q]]")


@pytest.mark.slow
def test_vocos_makes_another_sound_of_the_same_codes(tmp_path: Path, vocos_cache: Path) -> None:
    file = make_public(tmp_path, "ar+nar")
    own, other = load(file, vocos_cache), load(file, vocos_cache, "vocos")
    assert (own.info.decoder, other.info.decoder) == ("codec", "vocos")
    assert speech(own) == speech(other)
    assert own.info.sha256 != other.info.sha256
    codec, vocos = sound(spoken(own)), sound(spoken(other))
    assert np.isfinite(vocos).all()
    assert len(vocos)
    assert not np.array_equal(codec, vocos)


@pytest.mark.slow
def test_what_vocos_spoke_is_heard_again(tmp_path: Path, vocos_cache: Path) -> None:
    synthesizer = load(make_public(tmp_path, "ar+nar-len"), vocos_cache, "vocos")
    chunks = spoken(synthesizer)
    result = chunks[-1].result
    assert result is not None
    again = synthesizer.audio.replay(result, Playback(monotonic()))
    np.testing.assert_array_equal(sound(again), sound(chunks))


def test_vocos_decodes_no_codes_but_encodecs(tmp_path: Path, vocos_cache: Path) -> None:
    with pytest.raises(CheckpointError, match="a codec of its own; Vocos decodes the codes of EnC"):
        load(make_toy(tmp_path), vocos_cache, "vocos")


def test_a_folder_without_a_model_is_refused_with_what_was_expected(
    tmp_path: Path, cache: Path
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "lm-1.safetensors").touch()  # of our layout, without its configuration
    for nothing in (tmp_path, tmp_path / "nowhere", parts):
        with pytest.raises(CheckpointError, match="neither a model's folder nor a published file"):
            open_speech_model(nothing, CPU, cache=cache)


def test_a_model_without_a_vocabulary_is_refused_with_the_way_out(
    tmp_path: Path, cache: Path
) -> None:
    file = make_public(tmp_path, "hf")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"put the tokenizer\.json"):
        open_speech_model(file, CPU, cache=cache, offline=True)


def test_a_vocabulary_that_is_none_is_refused(tmp_path: Path, cache: Path) -> None:
    file = make_public(tmp_path, "hf")
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 5, "abc": 6}}}')
    with pytest.raises(CheckpointError, match=r"'abc' .* no merge"):
        load(file, cache)
