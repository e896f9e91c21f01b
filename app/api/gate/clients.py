"""Identity of a client for limits and shares: the owner of its API key, or its address."""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

_IPV6_PREFIX_BITS = 64  # what one home or one rented machine is given, to choose addresses from


def client_of(connection: HTTPConnection) -> str:
    """Return the client of a connection: an owner of API keys, or an address without keys."""
    client = connection.client
    return str(connection.state.owner) or (network_of(client.host) if client else "")


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return the address that counts for a host; for IPv6 its /64, as one client has many."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _IPV6_PREFIX_BITS), strict=False))
