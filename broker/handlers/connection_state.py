"""The state of one connection: its listener, its client, and its step of authentication.

Owns `ConnectionState`, which a connection makes once and every request of it carries. Invariants: the
listener and the client's address never change; the rest is replaced as a whole value by the handler that
learns it, before that handler returns. A handler that continues later copies what it needs in its synchronous
part.

Pure.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listeners import SecurityProtocol


class Principal(NamedTuple):
    """The user in whose name requests are made: `User:alice`, as ACLs name it."""

    type: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a client of a listener without authentication."""


class AuthenticationStep(Enum):
    """The step of a connection. `broker.net.gate` says which APIs are open at each step."""

    NOT_REQUIRED = auto()
    """The listener has no authentication."""


class ConnectionState:
    """One connection. `connection_id` is unique within one run of the broker; `listener` is the one by which
    the client came in, with the address that it advertises to this client.
    """

    __slots__ = (
        "authentication", "client_host", "client_software", "connection_id", "listener", "principal",
        "security_protocol",
    )  # fmt: skip

    def __init__(
        self, connection_id: int, listener: Listener, security_protocol: SecurityProtocol, client_host: str
    ) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.security_protocol = security_protocol
        self.client_host = client_host
        self.principal = ANONYMOUS
        self.authentication = AuthenticationStep.NOT_REQUIRED
        self.client_software = ""
        """Name and version that the client gives itself (ApiVersions 3 and newer, KIP-511)."""
