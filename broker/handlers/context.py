"""What a handler knows about the request beside its values: who sent it, and by which listener it came in.

Invariants: immutable, and cheap enough to be made once a request. `Listener` is made once a connection.

Made by `broker.net.dispatch`, read by handlers.
"""

from typing import Any, NamedTuple

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


class EncodedAnswer(dict[str, Any]):
    """An answer that a thread has encoded already, because it is long: the body, and as a dictionary what
    is left of it for those who count its error codes.
    """

    def __init__(self, body: bytes, summary: dict[str, Any]) -> None:
        super().__init__(summary)
        self.body = body
