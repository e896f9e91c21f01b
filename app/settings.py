"""The operator's settings, from `TTS_*` variables or the flags of `serve`.

Loads without torch. How speech sounds is not a setting but a knob of each request
(`samplers.knobs.params`), and the shape of a model is read from its checkpoint.
"""

import os
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from errno import ELOOP, ENAMETOOLONG
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

BUILTIN_MODEL = Path(__file__).resolve().parents[1] / "weights"
"""Folder of the built-in voice."""

MODEL_NAME = "model"
"""In `TTS_ALIASES`, the loaded model."""

KOKORO_NAMES = {
    "kokoro": MODEL_NAME,
    "af_bella": "bella",
    "af_heart": "heart",
    "af_sarah": "sarah",
    "am_fenrir": "fenrir",
    "am_michael": "michael",
    "am_puck": "puck",
    "bf_emma": "emma",
    "bf_isabella": "isabella",
    "bm_george": "george",
}
"""Names that Kokoro's clients send; those of voices that the model does not have mean nothing."""

_DATA = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
if not _DATA.expanduser().is_absolute():  # which the specification has ignored
    _DATA = Path("~/.local/share")
_VOICES = str(_DATA / "valle-serve" / "voices")
_EARLIER_VOICES = Path("~/.cache/valle-serve/voices")
"""Where uploaded voices lay until they had a folder that nobody clears."""

_PREFIX = "TTS_"
_CLOSE = 0.75  # difflib ratio of the names without their common prefix
_TEST_VARIABLES = frozenset({"TTS_GOLDEN"})
_SHOWN_CHARS = 60


class Settings(BaseSettings):
    """Settings of a server process."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    port_file: str = Field(
        "",
        description="File to write the port to once the server listens, for probes and for"
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
        description="Folder of downloaded and converted codecs; models are in the hub's"
        " own cache, HF_HOME.",
    )
    offline: bool = Field(
        False, description="Download nothing: models must be local or in the caches."
    )
    voices: str = Field(
        _VOICES,
        min_length=1,
        description="Folder of uploaded voices, or a URL as in s3://bucket/voices; back it up, it"
        " cannot be downloaded again (docs/upgrade.md).",
    )
    max_voices: int = Field(
        100, ge=0, description="Uploaded voices per API key; 0 refuses uploads."
    )
    unreadable: Literal["skip", "refuse"] = Field(
        "skip",
        description="What becomes of letters and signs that the voice does not read, by default of"
        " requests: they are left out and named in X-Warning, or the text is refused.",
    )
    presets: str = Field(
        "",
        description="JSON file, or folder of such files, with further presets; empty: none.",
    )
    pronunciations: str = Field(
        "",
        description="JSON file of words and what is spoken for each, for every request; or a folder"
        " of such files, default.json for every request, others for those that name them;"
        " empty: none.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device of the model; auto is a GPU if there is one."
    )
    weights: Literal["auto", "int8", "float32"] = Field(
        "auto",
        description="Weights on a CPU: int8 is faster than float32 on x86 and exact in any batch;"
        " auto is int8 on x86 processors and float32 on others.",
    )
    decoder: Literal["codec", "vocos"] = Field(
        "codec",
        description="Decoder of codes: the codec's, or Vocos for models that use EnCodec.",
    )
    threads: int = Field(
        1,
        ge=1,
        le=64,
        description="CPU threads of one step; with float32 weights, more than 1 makes repeats"
        " inexact.",
    )
    fused_kernels: Literal["auto", "off"] = Field(
        "auto",
        description="Kernels of the service's own on a GPU: auto uses each that computes there what"
        " torch's operators do, as tried at the start; off uses none.",
    )
    kv_cache_dtype: Literal["auto", "int8"] = Field(
        "auto",
        description="Keys and values on a GPU: auto holds them as the weights, int8 in half the"
        " memory with a scale for each head of a position. A CPU with int8 weights always does.",
    )
    gpu_memory_utilization: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of a GPU's whole memory that this process may take. Several processes on"
        " one GPU need one each; 1: whatever is free.",
    )
    max_text_chars: int = Field(4096, ge=10, description="Limit of a request's text in characters.")
    max_audio_s: float = Field(
        1800.0,
        gt=0,
        allow_inf_nan=False,
        description="Limit of a request's speech in seconds, including pauses and a slow speed;"
        " a longer one is refused before any work.",
    )
    max_body_bytes: int = Field(262_144, ge=1024, description="Limit of a request body in bytes.")
    max_upload_bytes: int = Field(
        10_485_760,
        ge=1024,
        description="Limit of an upload's body in bytes.",
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
        description="Seconds a client may take to send a request's head, from its first byte"
        " or the start of the connection.",
    )
    max_connections: int = Field(
        512,
        ge=1,
        description="Limit of open connections with WebSockets and idle ones; further ones are"
        " refused.",
    )
    voice_process: bool = Field(
        True,
        description="On a CPU, decode audio in a separate process: two threads would slow each"
        " other down. Takes some 300 MB more.",
    )
    text_process: bool = Field(
        True,
        description="Read texts in a separate process, so that a long text does not slow speech"
        " down, and what ends the native code that reads it ends that process only. Takes some"
        " 60 MB more; may be off where TTS_HOST is this machine's own.",
    )
    unload_after_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without a request after which a GPU's memory is freed until the"
        " next request; 0: never.",
    )
    wyoming_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of the Wyoming protocol, for Home Assistant; it has no keys, so none may"
        " be configured; 0: off.",
    )
    alignment: str = Field(
        "",
        pattern=r"^(\d{1,3}\.\d{1,3}(\+\d{1,2})?)?$",
        description="Attention head that follows the text, as valle-serve tools calibrate names it:"
        " 3.2+3 is layer 3, head 2, 3 frames ahead of the sound; empty: the model's own.",
    )
    live_lookahead_words: int = Field(
        0,
        ge=0,
        le=8,
        description="`text_lookahead_words` of texts that come over WebSockets and Wyoming, where"
        " neither the request nor its preset says: speech begins before its sentence is written. 0:"
        " whole sentences.",
    )
    instructions: Literal["ignore", "refuse"] = Field(
        "ignore",
        description="What happens to `instructions`, which OpenAI's clients send and no model here"
        " takes: ignore names the field in the header X-Ignored; refuse is a 422.",
    )
    aliases: str = Field(
        "",
        description="Further names of voices and of the model: anna=heart, or several with commas;"
        " xtts=model is a name of the loaded model. Kokoro's and OpenAI's names are known. The case"
        " of names is ignored.",
    )
    slots: int = Field(
        20,
        ge=1,
        le=256,
        description="Rows of the decoding batch; a request takes one, or two with guidance, and"
        " more for best_of and beams. One client may have four fifths of them.",
    )
    check_golden: bool = Field(
        False,
        description="Speak 20 golden requests at the start, whose codes are stored with the model,"
        " and report in GET /health whether they are the same.",
    )
    max_queue: int = Field(16, ge=0, description="Limit of waiting requests; further ones get 503.")
    max_wait_s: float = Field(
        15.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a streamed request may be expected to wait until it begins; one"
        " that would wait longer gets 503 at once.",
    )
    keep: int = Field(
        64,
        ge=0,
        description="Recent responses kept for GET /v1/audio/speech/{id}; 0: none.",
    )
    state: SecretStr = Field(
        SecretStr("memory"),
        description="Where limits, recent responses and request ids are kept: memory, the"
        " default, of this process alone, or redis://user:password@host:6379/0 for several.",
    )
    state_fail: Literal["open", "closed"] = Field(
        "open",
        description="While Redis is away: open lets each process hold the limits alone, closed"
        " refuses what is limited with 503.",
    )
    keep_s: int = Field(
        900, ge=1, description="Seconds that Redis keeps a recent response and a request id."
    )
    keep_bytes: int = Field(
        67_108_864,
        ge=65_536,
        description="Limit of the recent responses of a key or address in Redis in bytes,"
        " compressed, with codes and traces; the oldest go first.",
    )
    once_per_id: bool = Field(
        False,
        description="Whether a speech request with the x-request-id of an earlier one of the same"
        " key is answered with that one's speech, and not spoken again.",
    )
    request_timeout_s: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="Limit of a request in seconds, with queueing, without pauses for its client.",
    )
    stall_timeout_s: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds in each of which a client must take 64 kB. One that stops is dropped"
        " after one to five times this.",
    )
    idle_timeout_s: float = Field(
        60.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds without messages and speech after which a WebSocket is closed.",
    )
    max_sessions: int = Field(64, ge=0, description="Limit of open WebSocket sessions.")
    origins: str = Field(
        "",
        description="Web origins that may use this service beside its own: https://a.example, or"
        " several with commas; * is any.",
    )
    allowed_hosts: str = Field(
        "",
        description="Host names allowed without keys, beside localhost, this machine's name"
        " and addresses: gpuhost, or several with commas;"
        " *.a.example is any subdomain, * any name.",
    )
    api_keys: SecretStr = Field(
        SecretStr(""),
        description="API keys as name:key or key, several with commas; for the"
        " environment, not for a command line. Without keys none is required.",
    )
    api_keys_file: str = Field(
        "",
        description="File of further keys as hashes, a line each, as valle-serve keys new"
        " prints them.",
    )
    rate_per_minute: int = Field(
        0,
        ge=0,
        description="Requests per minute of a key, or of an address without keys; 0: no limit.",
    )
    max_concurrent_per_key: int = Field(
        0,
        ge=0,
        description="Concurrent requests of a key, or of an address without keys; 0: no limit.",
    )
    metrics: Literal["key", "open", "off"] = Field(
        "key",
        description="Who may read GET /metrics: clients with a key, if there are keys (key);"
        " everybody (open); nobody (off).",
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds for running requests at shutdown."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of log lines: text, or one JSON object per line."
    )
    log_text: bool = Field(
        False, description="Log the texts of requests; otherwise no text is logged."
    )

    @property
    def state_url(self) -> str | None:
        """URL of the shared state; None if it is in memory."""
        where = self.state.get_secret_value()
        return None if where == "memory" else where

    @property
    def earlier_voices(self) -> Path | None:
        """Folder whose voices are there too, as no other place is named than the usual one."""
        return _EARLIER_VOICES if self.voices == _VOICES else None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def asks_for_keys(self) -> bool:
        """Whether API keys are configured; the key file must then hold at least one."""
        return bool(self.api_keys.get_secret_value() or self.api_keys_file)

    @cached_property
    def names(self) -> dict[str, str]:
        """Further names -> a voice or `MODEL_NAME`, in lower case: Kokoro's and the operator's.

        Raises ValueError if they are malformed.
        """
        names: dict[str, str] = {}
        for pair in filter(None, map(str.strip, self.aliases.split(","))):
            name, _, target = (part.strip().lower() for part in pair.partition("="))
            if not name or not target:
                raise ValueError(f"TTS_ALIASES: {pair!r} is not NAME=VOICE or NAME={MODEL_NAME}")
            if names.setdefault(name, target) != target:
                raise ValueError(f"TTS_ALIASES: {name!r} is given twice")
        return KOKORO_NAMES | names

    @model_validator(mode="after")
    def _wyoming_is_open(self) -> Self:
        """Refuse a port without keys beside keys."""
        if self.wyoming_port and self.asks_for_keys:
            raise ValueError(
                "TTS_WYOMING_PORT: the Wyoming protocol has no keys, and this server asks for them"
            )
        return self

    @model_validator(mode="after")
    def _texts_are_read_apart(self) -> Self:
        """Refuse to read the texts of other machines in this process."""
        # espeak-ng is native code: a text that ends its process must not end the service.
        if not self.text_process and not self.is_local:
            raise ValueError(
                f"TTS_TEXT_PROCESS: without a process for texts the service serves this machine"
                f" only, and TTS_HOST is {self.host}"
            )
        return self

    @model_validator(mode="after")
    def _aliases_are_pairs(self) -> Self:
        _ = self.names
        return self

    @field_validator(
        "model", "cache", "voices", "presets", "pronunciations", "api_keys_file", "port_file"
    )
    @classmethod
    def _path_can_be_one(cls, name: str) -> str:
        """Refuse a path that no file can have."""
        try:
            Path(name).expanduser().stat()
        except OSError as error:
            if error.errno in {ENAMETOOLONG, ELOOP}:
                raise ValueError(f"{_shown(name)}: {error.strerror}") from error
        except (RuntimeError, ValueError) as error:  # a home of nobody; a NUL
            raise ValueError(f"{_shown(name)}: {error}") from error
        return name

    @field_validator("host")
    @classmethod
    def _host_can_be_one(cls, host: str) -> str:
        """Refuse a name that no host can have."""
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise ValueError(f"{_shown(host)} is no host name: {error}") from error
        return host

    @field_validator("state")
    @classmethod
    def _state_is_known(cls, state: SecretStr) -> SecretStr:
        """Refuse what is no place for the state."""
        where = state.get_secret_value()
        if where != "memory" and not where.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be memory, or begin with redis://, rediss:// or unix://")
        return state

    @model_validator(mode="after")
    def _environment_is_known(self) -> Self:
        """Refuse misspelt variables, which pydantic-settings would ignore."""
        unknown = unknown_variables(os.environ)
        if unknown:
            raise ValueError("; ".join(unknown))
        return self


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "...")


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return an error message for each `TTS_*` name that is not a setting."""
    settings = sorted(field.upper() for field in Settings.model_fields)
    known = {_PREFIX + field for field in settings} | _TEST_VARIABLES
    sentences = []
    for name in sorted(names):
        if name.upper().startswith(_PREFIX) and name.upper() not in known:
            sentences.append(f"{name} is not a setting{_hint(name.upper(), known)}")
    return sentences


def _hint(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown variable; empty if no setting is similar."""
    from samplers.knobs.params import SamplingParams

    knob = name.removeprefix(_PREFIX).lower()
    if knob in SamplingParams.model_fields:
        return f": {knob} is a knob of each request; a preset of TTS_PRESETS may set it for all"
    names = sorted(one.removeprefix(_PREFIX) for one in known)
    near = get_close_matches(name.removeprefix(_PREFIX), names, n=1, cutoff=_CLOSE)
    return f", did you mean {_PREFIX}{near[0]}?" if near else ""
