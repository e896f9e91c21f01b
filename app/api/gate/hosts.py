"""By which names the service may be called where no key is asked for.

A page of elsewhere can have its own name resolve to an address of this machine or of its network
(DNS rebinding). To the browser the page and the service are then one origin, and the name in `Host`
is all that tells them apart. It cannot do that with an address, which is resolved by nobody, nor
with `localhost`, which browsers resolve themselves. Where keys are asked for the page has none.
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
    """The names that may be used: loopback's, this machine's, and those that the operator lists."""

    def __init__(self, listening: str, listed: str) -> None:
        """Take them.

        Args:
            listening: The name or address that the service listens to.
            listed: More, with commas; `*.a.example` is whatever ends so, `*` is any.
        """
        more = filter(None, map(_plain, listed.split(",")))
        self._names = _LOOPBACK | {_plain(listening), _plain(socket.gethostname()), *more}

    def allow(self, connection: HTTPConnection) -> bool:
        """Tell whether a request calls the service by a name that it has, or by an address.

        Without any name it is no browser's, which always send one.
        """
        sent = connection.headers.getlist("host")
        return len(sent) <= 1 and (not any(sent) or self._known(sent[0].lower()))

    def _known(self, sent: str) -> bool:
        if "*" in self._names:
            return True
        parts = _HOST.fullmatch(sent)
        if parts is None:
            return False
        name = parts["v6"] or _plain(parts["name"])
        return _is_address(name) or any(fnmatchcase(name, known) for known in self._names)


def unknown_host(connection: HTTPConnection) -> Response:
    """Return what is told to somebody who calls the service by a name that is not its own."""
    message = (
        f"this service has no name {connection.headers.get('host', '')[:_SHOWN_CHARS]!r}; whoever"
        " runs it can list names in TTS_ALLOWED_HOSTS, or ask for keys"
    )
    return error_response(403, message, param="host", code="host")


def _plain(name: str) -> str:
    """Return a name as it is compared: the dot at the end of a whole name says nothing."""
    return name.strip().lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
