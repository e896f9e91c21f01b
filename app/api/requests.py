"""How routes read a request: its body within limits, the model's name and the output options."""

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers

from app.api.errors import problems_of
from app.api.exclusions import OPUS_ONLY_AT, exclusions_of
from app.api.lenient import utf8, validated
from app.api.schemas import ModelItem, SpeechOptions
from app.audio.delivery import FileOptions
from app.audio.formats import OPUS_RATES, AudioFormat
from app.engine.core import SpeechJob
from app.engine.errors import InvalidRequest, UnknownModel
from app.settings import MODEL_NAME, Settings

_B = TypeVar("_B", bound=BaseModel)

log = logging.getLogger(__name__)


def media_type(headers: Headers) -> str:
    """Return the media type of a body in lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


MAX_FIELDS: Final = 256
MAX_VALUES: Final = 8192
"""More than the longest valid request has in all its lists."""

_TOO_MANY_VALUES: Final = f"the body has more than {MAX_VALUES} values in its lists and objects"
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # or the rest, where none ends
_SMALL_BYTES: Final = 2 * MAX_FIELDS  # too short to exceed either limit


def check_json_size(raw: bytes | str) -> None:
    """Check the number of fields and values as `sized_json`; anything that is not JSON passes.

    pydantic reports errors value by value in a single call, which for 100,000 values would block
    the event loop for a second.
    """
    if len(raw) > _SMALL_BYTES:
        with suppress(ValueError):
            sized_json(raw)


def sized_json(raw: bytes | str) -> Any:
    """Return what JSON says.

    Raises ValueError if it is none, InvalidRequest if it has too many fields or values.
    """
    if _has_too_many_values(raw if isinstance(raw, bytes) else raw.encode(errors="replace")):
        raise InvalidRequest(_TOO_MANY_VALUES)
    sent = from_json(raw)
    if isinstance(sent, dict) and len(sent) > MAX_FIELDS:
        raise InvalidRequest(f"the body has {len(sent)} fields, the limit is {MAX_FIELDS}")
    values = 0
    inner = [sent]
    while inner and values <= MAX_VALUES:
        one = inner.pop()
        values += len(one) if isinstance(one, dict | list) else 0
        if isinstance(one, dict):
            one = list(one.values())
        if isinstance(one, list):
            inner += [value for value in one[:MAX_VALUES] if isinstance(value, dict | list)]
    if values > MAX_VALUES:
        raise InvalidRequest(_TOO_MANY_VALUES)
    return sent


def _has_too_many_values(raw: bytes) -> bool:
    """Return whether the marks of JSON tell so; parsed, its values would hold up all threads."""
    if raw.count(b'"') - raw.count(b'\\"') > 4 * MAX_VALUES + 2:  # of keys, values and the whole
        return True
    return _has_many_marks(raw) and _has_many_marks(_STRING.sub(b"", raw))


def _has_many_marks(raw: bytes) -> bool:
    return raw.count(b",") > MAX_VALUES or raw.count(b"[") + raw.count(b"{") > MAX_VALUES + 1


IGNORED_FIELDS: Final = frozenset({
    "allow_voice_tags",
    "download_format",
    "initial_codec_chunk_frames",
    "lang_code",
    "max_new_tokens",
    "metadata",
    "non_streaming_mode",
    "normalization_options",
    "return_download_link",
    "safety_identifier",
    "ssml",
    "task_type",
    "user",
    "volume_multiplier",
})
"""Fields that clients of other servers send and that do nothing here: `X-Ignored` names them.

Anybody may add one that changes neither the words nor who speaks.
"""

IGNORED_VALUES: Final = {"task_type": ("CustomVoice",)}
"""Values of those that do nothing at these alone: other tasks ask for another voice."""

_TO_CLEAN: Final = re.compile(rf"null|{'|'.join(sorted(IGNORED_FIELDS))}")


def cleaned_body(
    raw: bytes | str, kinds: Mapping[str, type[BaseModel]] | type[BaseModel]
) -> tuple[bytes | str, list[str]]:
    """Return JSON without fields that are null and have a default, and the `IGNORED_FIELDS` it had.

    ``kinds`` is its model, or models by the value of `type`. This is not a validator of the model:
    a "before" validator would turn JSON into Python objects, and pydantic's strict mode takes a
    JSON list for a tuple but not a Python list.
    """
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    if not _TO_CLEAN.search(text):
        return raw, []
    try:
        sent = from_json(raw)
    except ValueError:
        return raw, []
    if not isinstance(sent, dict):
        return raw, []
    kind = kinds.get(str(sent.get("type"))) if isinstance(kinds, Mapping) else kinds
    if kind is None:
        return raw, []
    fields = kind.model_fields
    unused = IGNORED_FIELDS - fields.keys() if issubclass(kind, SpeechOptions) else frozenset()
    unused -= {name for name, some in IGNORED_VALUES.items() if sent.get(name) not in (None, *some)}
    ignored = sorted(unused & sent.keys())
    kept = {
        name: value
        for name, value in sent.items()
        if name not in unused
        and (value is not None or name not in fields or fields[name].is_required())
    }
    unchanged = len(kept) == len(sent)
    return raw if unchanged else to_json(kept, inf_nan_mode="constants"), ignored


def json_body(kind: type[_B]) -> Callable[[Request], Awaitable[_B]]:
    """Return the FastAPI dependency that reads a JSON body of a kind."""

    async def read(request: Request) -> _B:
        """Validate the body in strict mode, but for what `app.api.lenient` reads."""
        if media_type(request.headers) != "application/json":
            raise HTTPException(415, "send JSON, with the header content-type: application/json")
        try:
            body = utf8(await request.body())
            check_json_size(body)
            content, request.state.ignored = cleaned_body(body, kind)
            return validated(lambda sent: kind.model_validate_json(sent, strict=True), content)
        except ValidationError as error:
            raise RequestValidationError(problems_of(error)) from error

    return read


def body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI entry of a JSON body of a kind."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    # Referenced schemas are components already: a speech report has the same knobs.
    schema.pop("$defs", None)
    if excluded := exclusions_of(kind):
        schema["not"] = {"anyOf": excluded}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


OPENAI_MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Model names that OpenAI's clients send; each is an alias of the loaded model."""

_DATED = re.compile(rf"({'|'.join(OPENAI_MODELS)})(-\d{{4}}(-\d\d-\d\d)?)?", re.IGNORECASE)


def model_names(settings: Settings) -> list[str]:
    """Return the operator's further names of the loaded model."""
    return [name for name, target in settings.names.items() if target == MODEL_NAME]


def check_model(wanted: str | None, loaded: str, names: Collection[str] = ()) -> None:
    """Raise UnknownModel unless a name means the loaded model, in any case; None does.

    OpenAI's names may carry a date, as in `gpt-4o-mini-tts-2025-12-15`; ``names`` are those of
    `model_names`.
    """
    if wanted is None or wanted.lower() in {loaded.lower(), *names} or _DATED.fullmatch(wanted):
        return
    raise UnknownModel(f"the loaded model is {loaded!r}, not {wanted[:64]!r}")


def model_item(name: str, loaded: str, names: Collection[str] = ()) -> ModelItem:
    """Return the description of a model under one of its names."""
    check_model(name, loaded, names)
    return ModelItem(id=name, alias_of=None if name.lower() == loaded.lower() else loaded)


def model_items(loaded: str, names: Collection[str] = ()) -> list[ModelItem]:
    """Return the descriptions of the loaded model under all its names, its own first."""
    every = dict.fromkeys((loaded, *OPENAI_MODELS, *names))
    return [model_item(name, loaded, names) for name in every]


def ignored_fields(wanted: SpeechOptions, settings: Settings, job_id: str) -> list[str]:
    """Return the names of the fields of a request that do nothing; they are logged.

    That is `instructions`, which no model takes. Raises InvalidRequest if the operator has such
    requests refused.
    """
    if not (wanted.instructions and wanted.instructions.strip()):
        return []
    if settings.instructions == "refuse":
        raise InvalidRequest(
            "the loaded model takes no instructions, and this server refuses them",
            param="instructions",
        )
    log.info("response %s: ignored instructions", job_id)
    return ["instructions"]


def output_of(job: SpeechJob, form: AudioFormat) -> FileOptions:
    """Return the requested speed, loudness and sample rate, in a container.

    Raises InvalidRequest if the container does not have that sample rate.
    """
    asked = job.output
    if form == "opus" and asked.sample_rate not in {None, *OPUS_RATES}:
        raise InvalidRequest(OPUS_ONLY_AT, param="sample_rate")
    return FileOptions(form, asked.speed, asked.loudness_lufs, asked.sample_rate)
