"""Ids of requests: one of the service for each, and the one that the client sent."""

import re
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import Scope

from app.api.middleware.access.clients import address_of
from app.logs import REQUEST_ID

ID_HEADER: Final = "x-request-id"

_CLIENT_ID: Final = r"(?:[A-Za-z0-9._:/+=@-]{1,200})?"


def identify(scope: Scope) -> None:
    """Give a request its id, and note that of the client and its address."""
    request_id = uuid4().hex
    sent_id = Headers(scope=scope).get(ID_HEADER, "")
    client_id = sent_id if re.fullmatch(_CLIENT_ID, sent_id) else None
    scope.setdefault("state", {}).update(id=request_id, owner="", client_id=client_id)
    if (client := scope.get("client")) is not None:
        # A proxy that is trusted to name the client may pass on any text.
        scope["client"] = (str(address_of(client[0]) or ""), client[1])
    REQUEST_ID.set(request_id)
