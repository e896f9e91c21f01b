"""The servers that tests of the API have, for those of other services' APIs."""

from tests.app.api.conftest import backend, client, impatient, streaming

__all__ = ["backend", "client", "impatient", "streaming"]
