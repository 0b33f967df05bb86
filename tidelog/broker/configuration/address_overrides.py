"""Addresses of clients: the one text of each, and the syntax of max.connections.per.ip.overrides.

Pure. Source: Kafka's SocketServerConfigs; an IPv6 address contains colons, so the last one counts.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from tidelog.protocol.settings import ConfigError

OVERRIDES = "max.connections.per.ip.overrides"


@lru_cache(4)
def connections_by_address(entries: tuple[str, ...]) -> dict[str, int]:
    """Address -> most connections. Raises ConfigError."""
    return dict(map(_entry, entries))


def _entry(text: str) -> tuple[str, int]:
    address, colon, most = text.rpartition(":")
    address = canonical_host(address.strip("[]"))
    if not (colon and is_address(address) and most.isdecimal()):
        raise ConfigError(
            f"{OVERRIDES}: expected a list of addresses, each with the number of its connections "
            f"(10.0.0.1:200), got {text!r}"
        )
    return address, int(most)


def canonical_host(host: str) -> str:
    """One text for each address: Java writes IPv6 in full, and an IPv4 client may come in as IPv6."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def is_address(host: str) -> bool:
    """Whether this is an address of IPv4 or IPv6, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
