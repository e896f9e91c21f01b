"""Generate documentation from declarations; ``--check`` only reports outdated files.

``docs/parameters.md`` comes from ``samplers.knobs.params`` and ``samplers.knobs.presets``,
``.env.example`` from ``app.settings``. Neither import loads torch.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from app.settings import BUILTIN_MODEL, Settings
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
FIXED_IN_CONTAINER = {"host", "port", "port_file", "cache", "voices"}
"""Settings that docker-compose.yml fixes: other values would leave its volumes or network."""
MANY = 2**32  # larger upper bounds are technical limits and are not printed

Schema = dict[str, Any]

PARAMETERS_HEAD = """\
<!-- Written by scripts/gen_docs.py from samplers/knobs/{params,presets}.py: edit those. -->
# Parameters

Every knob is a field of the request body, like `input` and `voice`, and a flag of
`valle-serve speak`. What the caller sets wins over the named `preset`, the preset over the default.
*off* is the value at which a knob does nothing. What the knobs do to speech:
[samplers.md](samplers.md).

An unknown field, a value out of bounds and conflicting knobs are refused with 422. The answer
has the name of the field.
"""

PRESETS_HEAD = """
## presets

A preset names only what differs from the defaults.

| preset | sets |
| --- | --- |
"""

ENV_HEAD = """\
# Copy to .env and uncomment what you change. docker compose reads it; lines with TTS_ are for the
# service itself. Without Docker, export the same TTS_* variables before scripts/serve; there are
# also {fixed}, which compose sets itself.
# Written by scripts/gen_docs.py from app/settings.py: edit that.

# --- docker compose -------------------------------------------------------------------------------
# Address of the host that answers; 0.0.0.0 is the whole network: set TTS_API_KEYS or _FILE first.
# BIND=127.0.0.1
# Port of the host.
# PORT=8000
# Tag of the image; with docker-compose.cpu.yml that is CPU_TAG.
# TAG=cuda
# CPU_TAG=cpu
# Build of PyTorch for the image: cpu, cu126, or the address of an index of its wheels; empty is
# the usual one, with CUDA, and cpu with docker-compose.cpu.yml.
# TORCH_INDEX_URL=
# Without a GPU, this line ends that every command of docker compose needs both files.
# COMPOSE_FILE=docker-compose.yml:docker-compose.cpu.yml
# Of the hub that models come from: a token, for models that ask for one, and a mirror; and proxies.
# HF_TOKEN=
# HF_ENDPOINT=
# HTTP_PROXY=
# HTTPS_PROXY=
# NO_PROXY=
# Ports of the host, and of it alone, that docker-compose.observability.yml shows.
# PROMETHEUS_PORT=9090
# GRAFANA_PORT=3000

# --- the service ----------------------------------------------------------------------------------
"""


def pages() -> dict[Path, str]:
    """Return the contents of each generated file, by its path from the root."""
    return {
        Path("docs/parameters.md"): "".join(_parameters()),
        Path(".env.example"): "".join(_env()),
    }


def _parameters() -> Iterator[str]:
    yield PARAMETERS_HEAD
    schemas = SamplingParams.model_json_schema()
    parts, fields = schemas.get("$defs", {}), schemas["properties"]
    groups: dict[str, list[str]] = {}
    for name, schema in fields.items():
        groups.setdefault(schema["x-ui"]["group"], []).append(_row(name, schema, parts))
    for group, rows in groups.items():
        yield f"\n## {group}\n\n| name | type | default | off | meaning |\n"
        yield "| --- | --- | --- | --- | --- |\n"
        yield from rows
    yield PRESETS_HEAD
    for preset, knobs in PRESETS.items():
        listed = ", ".join(f"`{name}` {_value(value)}" for name, value in knobs.items())
        yield f"| `{preset}` | {listed or 'nothing'} |\n"


def _row(name: str, schema: Schema, parts: Schema) -> str:
    hints = schema["x-ui"]
    unit = f" {hints['unit']}" if "unit" in hints else ""
    off = _value(hints["off"]) if "off" in hints else ""
    default = _value(schema["default"])
    meaning = schema["description"].replace("|", "\\|")
    return f"| `{name}` | {_kind(schema, parts)}{unit} | {default} | {off} | {meaning} |\n"


def _kind(schema: Schema, parts: Schema) -> str:
    """Return type and bounds of a field, such as `number > 0` or `integer, 0 to 32`."""
    if "$ref" in schema:
        return _kind(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in schema:
        kinds = [_kind(one, parts) for one in schema["anyOf"] if one.get("type") != "null"]
        return ", or ".join(kinds)
    if "enum" in schema:
        return " or ".join(_value(choice) for choice in schema["enum"])
    kind = schema["type"]
    if kind == "array":
        return f"list of {_kind(schema['items'], parts)}"
    if "properties" in schema:
        return "object of " + ", ".join(_value(name) for name in schema["properties"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < MANY:
        return f"{kind}, {low:g} to {high:g}"
    for sign, key in ((">=", "minimum"), (">", "exclusiveMinimum"), ("<=", "maximum")):
        if key in schema:
            return f"{kind} {sign} {schema[key]:g}"
    return str(kind)


def _value(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _env() -> Iterator[str]:
    fixed = [f"TTS_{name.upper()}" for name in Settings.model_fields if name in FIXED_IN_CONTAINER]
    yield ENV_HEAD.format(fixed=", ".join(fixed))
    for name, field in Settings.model_fields.items():
        if name in FIXED_IN_CONTAINER:
            continue
        default = field.default
        if default == str(BUILTIN_MODEL):
            default = BUILTIN_MODEL.relative_to(ROOT)
        if isinstance(default, SecretStr):  # a default is no secret
            default = default.get_secret_value()
        value = "" if default is None else default
        yield f"# {field.description}\n# TTS_{name.upper()}={value}\n"


def main() -> int:
    """Write every page, or with ``--check`` name those that differ; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is stale")
    check = parser.parse_args().check
    stale = [path for path, text in pages().items() if _held(path) != text]
    for path in stale:
        if check:
            print(f"{path} is not what scripts/gen_docs.py writes: run it", file=sys.stderr)
        else:
            (ROOT / path).write_text(pages()[path], encoding="utf-8")
            print(f"wrote {path}")
    return int(check and bool(stale))


def _held(path: Path) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
