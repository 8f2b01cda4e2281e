"""Hosts by name or address: which of them are this machine."""

import ipaddress


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a text is; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host: a loopback address, or `localhost`."""
    address = address_of(host)
    return host == "localhost" if address is None else address.is_loopback
