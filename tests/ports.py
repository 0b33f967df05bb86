"""Ports where nobody listens, kept from everybody else until this process ends.

Owns a bound socket for each of them. Invariant: a connection to the port is refused until somebody listens
who was given it. Without the socket, a test in another process could be given the same port meanwhile.
"""

import socket

_held: list[socket.socket] = []


def free_port() -> int:
    """Of 127.0.0.1. Whoever sets SO_REUSEADDR, as servers do, can listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    return int(held.getsockname()[1])


def free_address() -> str:
    """`host:port` of a free port."""
    return f"127.0.0.1:{free_port()}"
