"""Who a client is: an owner of API keys, or an address where no keys are required."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from starlette.requests import HTTPConnection

_IPV6_PREFIX_BITS = 64  # what one home or one rented machine is given, to choose addresses from


def client_of(connection: HTTPConnection) -> str:
    """Return the client of a connection: an owner of API keys, or an address without keys."""
    client = connection.client
    return str(connection.state.owner) or (network_of(client.host) if client else "")


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, without its zone; None if it is none."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return the address that counts for a host; for IPv6 its /64, as one client has many."""
    address = address_of(host)
    if address is None:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _IPV6_PREFIX_BITS), strict=False))
