from types import SimpleNamespace

import pytest
from starlette.requests import HTTPConnection

from app.api.gate.admission import client_of, network_of


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_one_client_is_one_address_or_the_network_that_it_was_given(host, counted) -> None:
    assert network_of(host) == counted


def test_an_owner_is_counted_as_itself_and_others_by_their_address() -> None:
    for owner, counted in (("alice", "alice"), ("", "10.0.0.7")):
        scope = {"type": "http", "client": ("10.0.0.7", 1), "state": {"owner": owner}}
        assert client_of(HTTPConnection(scope)) == counted
    unix = SimpleNamespace(client=None, state=SimpleNamespace(owner=""))
    assert client_of(unix) == ""  # type: ignore[arg-type]
