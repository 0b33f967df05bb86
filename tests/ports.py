"""Ports where nobody listens, kept from everybody else until this process ends.

Owns a bound socket for each of them. Invariant: a connection to the port is refused until somebody listens
who was given it. Without the socket, a test in another process could be given the same port meanwhile.
"""

import socket

from faults.process import hold_free_port

_held: list[socket.socket] = []


def free_port() -> int:
    """Of 127.0.0.1."""
    held = hold_free_port()
    _held.append(held)
    return int(held.getsockname()[1])


def free_address() -> str:
    """`host:port` of a free port."""
    return f"127.0.0.1:{free_port()}"
