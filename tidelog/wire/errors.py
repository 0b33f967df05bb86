"""The exceptions of connections and of the view of a cluster: the base of all that a client raises.

Owns: the classes, whether a retry may help (`retriable`), and what to do (`hint`). Invariants: `retriable` is
True only if the same call may succeed later and cannot store anything twice. An error that a broker answered
keeps its code.
"""

from collections.abc import Iterable

from tidelog.protocol.errors import ErrorCode


class ClientError(Exception):
    """The base class. `str()` says what happened and what to do."""

    retriable: bool = False
    hint: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class ClientClosedError(ClientError):
    """The client was closed, or was never started."""

    hint = "Use it inside `async with`, or call start() first. After its end, make a new one"


class UnexpectedError(ClientError):
    """The client's own work failed, by a defect of it or of its environment. The cause is what failed."""

    hint = "Report it with the traceback of its cause"

    @classmethod
    def of(cls, cause: BaseException) -> "UnexpectedError":
        """The error that an application gets for `cause`."""
        if isinstance(cause, cls):
            return cause
        error = cls(f"the client failed: {cause!r}")
        error.__cause__ = cause
        return error


class BrokerUnavailableError(ClientError):
    """No broker could be reached."""

    retriable = True
    hint = "Check the address. Check that the broker runs and advertises an address that this host can reach"
    is_refused: bool = False
    """Whether the other side, or the resolver of names, refused: nobody is waited for."""
    tls_error: "TlsError | None" = None
    """What it is if this repeats: the other side broke off the TLS handshake."""


class ConnectionLostError(ClientError):
    """The connection broke before the answer came. The broker may have executed the request."""

    retriable = True
    hint = "A request that changes nothing can be repeated at once"


class RequestTimeoutError(ConnectionLostError):
    """The broker did not answer in time. The connection was closed, so a late answer cannot arrive."""

    hint = "If the broker is slow, increase request_timeout_ms"


class UnsupportedVersionError(ClientError):
    """Client and broker have no common version of an API."""

    hint = "The broker is too old or too new for this call"


class AuthenticationError(ClientError):
    """The broker does not accept the credentials, or the client does not trust the broker."""

    hint = "Check security_protocol, sasl_mechanism, user and password. A retry does not help"


class TlsError(AuthenticationError):
    """The TLS handshake failed, or a file of certificates cannot be used."""

    hint = "A retry does not help"


_KINDS: dict[ErrorCode, type["BrokerError"]] = {}


class BrokerError(ClientError):
    """A broker answered a request with an error. `code` is the protocol's error code. A subclass names those
    that `broker_error` raises as it."""

    hint = "Change the request. A retry does not help"

    def __init_subclass__(cls, codes: Iterable[ErrorCode] = ()) -> None:
        _KINDS.update(dict.fromkeys(codes, cls))

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{message} [{code.name} {code.value}]")
        self.code = code
        self.retriable = code.retriable
        if code.retriable and self.hint is BrokerError.hint:
            self.hint = "Try again"


class UnknownTopicError(
    BrokerError, codes=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
):
    """The cluster has no such topic or partition."""

    hint = "Check the name, or create the topic"


class AuthorizationError(BrokerError):
    """The broker does not permit the request."""

    hint = "Ask an administrator for the permission. A retry does not help"


class TopicAuthorizationFailedError(AuthorizationError, codes=(ErrorCode.TOPIC_AUTHORIZATION_FAILED,)):
    """The user may not read, write, create or change the topic."""


def broker_error(code: ErrorCode, what: str, message: str | None = None) -> BrokerError:
    """The exception for `code`. `what` names the subject ("topic 'a'"), `message` is the broker's text."""
    return _KINDS.get(code, BrokerError)(code, f"{what}: {message or code.message}")
