"""Who is counted, wherever something is shared: an owner of keys, or an address without keys."""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

_HOME_BITS = 64  # what one home or one rented machine is given, to choose addresses from


def asker(connection: HTTPConnection) -> str:
    """Return who asks: an owner, or an address where nobody is asked for a key."""
    client = connection.client
    return str(connection.state.owner) or (network_of(client.host) if client else "")


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return what stands for an address: itself, or of IPv6 the network that one client has.

    Whoever has one address of IPv6 has 2^64 of them.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _HOME_BITS), strict=False))
