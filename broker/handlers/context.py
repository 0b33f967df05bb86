"""What a handler knows about the request beside its values: who sent it, and by which listener it came in.

Invariants: immutable, and cheap enough to be made once a request. `Listener` is made once a connection.

Made by `broker.net.dispatch`, read by handlers.
"""

from typing import NamedTuple

from protocol.framing import RequestHeader


class Listener(NamedTuple):
    """The address by which the client of this connection reaches this broker.

    `name` is the listener's ("external" or "internal"); `host` and `port` are what it advertises.
    """

    name: str
    host: str
    port: int


class RequestContext(NamedTuple):
    """One request's surroundings. `connection_id` is unique within one run of the broker."""

    header: RequestHeader
    client_host: str
    connection_id: int
    listener: Listener


class CloseConnection(Exception):
    """Raised by a handler, or by what it returned: the connection ends, and this request gets no answer."""
