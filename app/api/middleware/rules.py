"""Paths and headers that the gate treats otherwise than the rest."""

from dataclasses import dataclass
from typing import Final

PROBES: Final = frozenset({"/health", "/ready"})
"""Paths that need no key and count towards no limit."""

METRICS_PATH: Final = "/metrics"

POLLED: Final = PROBES | {METRICS_PATH}
"""Polled routes: logged at level debug unless they fail."""


@dataclass(frozen=True, kw_only=True)
class GateRules:
    """What the parts of a service ask of the gate."""

    open_paths: frozenset[str] = frozenset()  # need no key and count towards no limit
    # Method and path of the routes that take recordings: `max_upload_bytes` is for them alone.
    uploads: frozenset[tuple[str, str]] = frozenset()
    key_headers: tuple[str, ...] = ()  # in which a key may be sent, beside `Authorization`
