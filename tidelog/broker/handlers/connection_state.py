"""The state of one connection: its listener, its client, and its step of authentication.

Owns `ConnectionState`, which a connection makes once and every request of it carries. Invariants: the
listener and the client's address never change; the rest is replaced as a whole value by the handler that
learns it, before that handler returns. A handler that continues later copies what it needs in its synchronous
part.

Pure.
"""

import sys
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.security.authorizer import Access

if TYPE_CHECKING:
    from tidelog.broker.security.authentication import SaslSession
    from tidelog.protocol.framing import RequestHeader


class Principal(NamedTuple):
    """The user in whose name requests are made: `User:alice`, as ACLs name it."""

    type: str
    name: str


USER: Final = "User"
"""The type of every principal that a connection can have."""
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client of a listener without authentication."""


class AuthenticationStep(Enum):
    """The step of a connection. `broker.served_apis` says which APIs are open at each step."""

    NOT_REQUIRED = auto()
    """The listener has no SASL."""
    HANDSHAKE = auto()
    """The client has to choose a mechanism."""
    AUTHENTICATING = auto()
    """It has to send tokens."""
    AUTHENTICATED = auto()
    """It is its principal."""
    REAUTHENTICATING = auto()
    """It is its principal, and has to send tokens to stay it (KIP-368)."""
    EXPIRED = auto()
    """Its session has ended: it may only authenticate again."""
    FAILED = auto()
    """It is not who it said; the connection ends with the last answer."""

    @property
    def is_early(self) -> bool:
        """Whether the client has not been authenticated yet and has to be."""
        return self in (AuthenticationStep.HANDSHAKE, AuthenticationStep.AUTHENTICATING)


class ConnectionState:
    """Holds what requests of one connection share. `connection_id` is unique within one run of the broker;
    `listener` is the one by which the client came in, with the address that it advertises to this client.
    """

    __slots__ = (
        "_closers", "_principal", "above_mutation_quota", "access", "authentication", "client_host",
        "client_id", "client_port", "client_software", "connection_id", "early_requests", "fetch_max_bytes",
        "listener", "sends_mapped", "session", "session_lifetime_ms", "when_moved",
    )  # fmt: skip

    def __init__(
        self, connection_id: int, listener: Listener, security_protocol: SecurityProtocol, client_host: str
    ) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.client_host = client_host
        self.client_port = 0
        self.principal = ANONYMOUS
        has_sasl = security_protocol.has_sasl
        self.authentication = AuthenticationStep.HANDSHAKE if has_sasl else AuthenticationStep.NOT_REQUIRED
        self.session: SaslSession | None = None
        self.session_lifetime_ms = 0
        """How long the last authentication holds; 0: without an end."""
        self.early_requests = 0
        """Requests before the client was authenticated."""
        self.when_moved: Callable[[AuthenticationStep], None] | None = None
        """Called with each new step."""
        self._closers: dict[str, Callable[[], None]] | None = None
        self.client_software = ""
        """Name and version that the client gives itself (ApiVersions 3 and newer, KIP-511)."""
        self.client_id = ""
        """That of its last ApiVersions request, which nearly all clients send first."""
        self.fetch_max_bytes = sys.maxsize
        """The most that one answer of Fetch may return, so that its client's quota is kept."""
        self.sends_mapped = False
        """Whether the system sends the answers, as without TLS: records may be mapped (`MappedWindow`)."""
        self.above_mutation_quota: RequestHeader | None = None
        """The last request that changed topics, if it was above `controller_mutation_rate`."""

    def move_to(self, step: AuthenticationStep) -> None:
        """Go to another step of authentication. Requests that arrive after this are served as it says."""
        self.authentication = step
        if self.when_moved is not None:
            self.when_moved(step)

    def when_closed(self, name: str, call: Callable[[], None]) -> None:
        """Call once when the connection is gone; a later call of this name replaces it."""
        if self._closers is None:
            self._closers = {}
        self._closers[name] = call

    def close(self) -> None:
        """The connection is gone."""
        closers, self._closers = self._closers, None
        for call in (closers or {}).values():
            call()

    @property
    def principal(self) -> Principal:
        """In whose name the client makes requests."""
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal
        self.access: Access | None = None
        """What this principal may do; `access_control` finds it with the first request that needs it."""
