"""What an operator sets, from `TTS_*` variables or the flags of `serve`.

Loads without torch. How speech sounds is no setting: that is `samplers.knobs.params`, per request,
and the shape of a model is read from its checkpoint.
"""

import os
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

BUILTIN_MODEL = Path(__file__).resolve().parents[1] / "weights"
"""The folder of the voice that comes with the project."""

_PREFIX = "TTS_"
_CLOSE = 0.75  # of 1, by difflib, the prefix left out, which all names share
_OF_TESTS = frozenset({"TTS_GOLDEN"})  # where golden files lie; read by tests alone


class Settings(BaseSettings):
    """How this process serves; see each field."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    port_file: str = Field(
        "",
        description="File that the port is written to once it is listened on, for probes and for"
        " port 0; empty: none.",
    )
    model: str = Field(
        str(BUILTIN_MODEL),
        min_length=1,
        description="Model folder, published checkpoint, or name like ecker/vall-e;"
        " default the built-in voice.",
    )
    cache: str = Field(
        "~/.cache/valle-serve",
        min_length=1,
        description="Folder of codecs that were downloaded and converted; models lie in the hub's"
        " own cache, HF_HOME.",
    )
    offline: bool = Field(
        False, description="Download nothing: a model must be here or in the caches."
    )
    voices: str = Field(
        "~/.cache/valle-serve/voices",
        min_length=1,
        description="Folder of uploaded voices; back it up, nothing brings it back.",
    )
    max_voices: int = Field(
        100, ge=0, description="Voices that may be uploaded with one key; 0 takes no uploads."
    )
    presets: str = Field(
        "",
        description="JSON file, or folder of such files, with presets beside the built-in ones; "
        "empty: no others.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the model runs; auto takes a GPU if there is one."
    )
    weights: Literal["auto", "int8", "float32"] = Field(
        "auto",
        description="Matrices on a CPU: int8 is faster than float32 on x86 and exact in any batch;"
        " auto is int8 on x86 processors and float32 on others.",
    )
    decoder: Literal["codec", "vocos"] = Field(
        "codec",
        description="What makes sound of codes: the codec, or Vocos, for models that use EnCodec.",
    )
    threads: int = Field(
        1,
        ge=1,
        le=64,
        description="CPU threads of one step; more than 1 gives up exact repeats with float32"
        " weights, not with int8.",
    )
    max_text_chars: int = Field(
        4096, ge=10, description="Longest text of a request, in characters; longer is refused."
    )
    max_audio_s: float = Field(
        1800.0,
        gt=0,
        allow_inf_nan=False,
        description="Longest speech of a request in seconds, its pauses and a slow speed counted;"
        " what would last longer is refused.",
    )
    max_body_bytes: int = Field(
        262_144, ge=1024, description="Largest request body; larger is refused."
    )
    max_upload_bytes: int = Field(
        10_485_760,
        ge=1024,
        description="Largest request body with a file in it; larger is refused.",
    )
    body_timeout_s: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a client may take to send a request body.",
    )
    header_timeout_s: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a client may take to send the head of a request, from its first byte"
        " or the connection's beginning.",
    )
    max_connections: int = Field(
        512,
        ge=1,
        description="Connections that may be open, WebSockets and idle ones too; one more is"
        " refused.",
    )
    voice_process: bool = Field(
        True,
        description="A process of its own makes the sound, on a CPU: two threads would slow each"
        " other down. Takes some 300 MB more.",
    )
    unload_after_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without a request after which a GPU's memory is given back, until the"
        " next request; 0: never.",
    )
    slots: int = Field(
        20,
        ge=1,
        le=256,
        description="Rows that draw together; a request takes one, or two if it is guided, and"
        " more for best_of and beams. A fifth of them is kept for others than who has the rest.",
    )
    check_golden: bool = Field(
        False,
        description="Speak the model's 20 golden requests at the start, whose codes are stored with"
        " it, and tell in GET /health whether they are the same here.",
    )
    max_queue: int = Field(
        16, ge=0, description="Requests that may wait; one more is told to come back later."
    )
    keep: int = Field(
        64,
        ge=0,
        description="Latest responses that GET /v1/audio/speech/{id} tells about; 0 keeps none.",
    )
    request_timeout_s: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a request may take, waiting included; pauses for its reader are not.",
    )
    stall_timeout_s: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a client may take none of its sound before its request is cancelled.",
    )
    idle_timeout_s: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds without a message and without speech that end a WebSocket session.",
    )
    max_sessions: int = Field(64, ge=0, description="WebSocket sessions that may be open.")
    origins: str = Field(
        "",
        description="Pages that may use this service beside this host's: https://a.example, or"
        " several with commas; * is every page.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names that the service may be called by beside localhost, this machine's own"
        " and any address, where nobody is asked for a key: gpuhost, or several with commas;"
        " *.a.example is whatever ends so, * is any.",
    )
    api_keys: SecretStr = Field(
        SecretStr(""),
        description="Keys that may be used, as name:key or key, several with commas; for the"
        " environment, not for a command line. With none, nobody is asked for one.",
    )
    api_keys_file: str = Field(
        "",
        description="File of further keys by their hashes, a line each, as valle-serve keys new"
        " writes them.",
    )
    rate_per_minute: int = Field(
        0,
        ge=0,
        description="Requests a key may make in a minute, or an address without keys; 0 any.",
    )
    max_concurrent_per_key: int = Field(
        0,
        ge=0,
        description="Requests of a key, or of an address without keys, that may be in work at once;"
        " 0 any.",
    )
    metrics: Literal["key", "open", "off"] = Field(
        "key",
        description="Who may read GET /metrics: whoever has a key, where there are keys; everybody;"
        " nobody.",
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds running requests get at shutdown."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity of the log lines that are written."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of a log line: for people, or an object for programs."
    )
    log_text: bool = Field(
        False, description="Write what people let be said into the log; else no text is in it."
    )

    @property
    def asks_for_keys(self) -> bool:
        """Whether keys are configured; then the key file must hold at least one."""
        return bool(self.api_keys.get_secret_value() or self.api_keys_file)

    @model_validator(mode="after")
    def _environment_is_known(self) -> Self:
        """Refuse a misspelt variable, which pydantic-settings would ignore in silence.

        Raises:
            ValueError: The environment has one.
        """
        unknown = unknown_variables(os.environ)
        if unknown:
            raise ValueError("; ".join(unknown))
        return self


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return a sentence for each `TTS_*` name that is no setting, with the likeliest one meant."""
    settings = sorted(field.upper() for field in Settings.model_fields)
    known = {_PREFIX + field for field in settings} | _OF_TESTS
    sentences = []
    for name in sorted(names):
        if name.upper().startswith(_PREFIX) and name.upper() not in known:
            sentences.append(f"{name} is not a setting{_hint(name.upper(), known)}")
    return sentences


def _hint(name: str, known: Collection[str]) -> str:
    """Return what may have been meant by an unknown variable; empty if nothing is like it."""
    from samplers.knobs.params import SamplingParams

    knob = name.removeprefix(_PREFIX).lower()
    if knob in SamplingParams.model_fields:
        return f": {knob} is a knob of each request; a preset of TTS_PRESETS may set it for all"
    names = sorted(one.removeprefix(_PREFIX) for one in known)
    near = get_close_matches(name.removeprefix(_PREFIX), names, n=1, cutoff=_CLOSE)
    return f", did you mean {_PREFIX}{near[0]}?" if near else ""
