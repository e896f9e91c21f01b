"""Host names by which the service may be called, where no keys are required.

The check of `Host` protects against DNS rebinding: a foreign web page can have its own host name
resolve to this machine. To the browser the page and the service are then one origin, and only
`Host` tells them apart. Addresses and `localhost` are always allowed: neither can be made to
resolve elsewhere. Where keys are required such a page has none, and any host is allowed.
"""

import re
import socket
from fnmatch import fnmatchcase
from ipaddress import ip_address

from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.api.errors import error_response

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/@\s]+))(?::\d{1,5})?")
_LOOPBACK = frozenset({"localhost", "*.localhost"})
_SHOWN_CHARS = 100


class Hosts:
    """The allowed host names: loopback's, this machine's, and those that the operator lists."""

    def __init__(self, listening: str, listed: str) -> None:
        listed_names = filter(None, map(_normalised, listed.split(",")))
        self._names = _LOOPBACK | {
            _normalised(listening),
            _normalised(socket.gethostname()),
            *listed_names,
        }

    def allow(self, connection: HTTPConnection) -> bool:
        """Return whether a request's `Host` is an allowed name or an address.

        A request without it is allowed: browsers always send one.
        """
        sent = connection.headers.getlist("host")
        return len(sent) <= 1 and (not any(sent) or self._known(sent[0].lower()))

    def _known(self, sent: str) -> bool:
        if "*" in self._names:
            return True
        parts = _HOST.fullmatch(sent)
        if parts is None:
            return False
        name = parts["v6"] or _normalised(parts["name"])
        return _is_address(name) or any(fnmatchcase(name, known) for known in self._names)


def unknown_host(connection: HTTPConnection) -> Response:
    """Return the error response for a host name that is not allowed."""
    message = (
        f"the host name {connection.headers.get('host', '')[:_SHOWN_CHARS]!r} is not allowed; the"
        " operator can list names in TTS_ALLOWED_HOSTS, or require API keys"
    )
    return error_response(403, message, param="host", code="host")


def _normalised(name: str) -> str:
    """Return a host name in lower case without the trailing dot of a full name."""
    return name.strip().lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
