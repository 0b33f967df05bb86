"""What an application gives for OAUTHBEARER: the interface of aiokafka's `AbstractTokenProvider`, or a file.

Owns: the interface, the file, and how a token is asked for. Invariant: no token is kept here, and none is in
an error.
"""

import inspect
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from tidelog.wire.errors import AuthenticationError, BrokerUnavailableError, ClientError

# RFC 6750, section 2.1. Other characters could end the field of the message that holds the token.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


@runtime_checkable
class TokenProvider(Protocol):
    """Gives a token for each new connection, and again before a session ends.

    An object with a method `extensions` adds the names and values that it returns (RFC 7628).
    """

    def token(self) -> str | Awaitable[str]:
        """A token that is valid now. It may be a coroutine. An exception means: try again later."""


def is_file(url: str | None) -> bool:
    """Whether sasl.oauthbearer.token.endpoint.url names a file, as Kafka permits."""
    return url is not None and urlsplit(url).scheme == "file"


class TokenFile:
    """A `TokenProvider` over a file that another program renews."""

    def __init__(self, url: str) -> None:
        self._path = Path(unquote(urlsplit(url).path))

    def token(self) -> str:
        """Raises BrokerUnavailableError: the file may come later."""
        try:
            return self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "expected text"
            raise BrokerUnavailableError(f"cannot read a token from {self._path}: {reason}") from error


async def ask_for_token(provider: TokenProvider) -> tuple[str, dict[str, str]]:
    """The token and its extensions. Raises BrokerUnavailableError if the provider fails, AuthenticationError
    if it gives what is no token."""
    try:
        answer: Any = provider.token()
        token = await answer if inspect.isawaitable(answer) else answer
        get_extensions = getattr(provider, "extensions", None)
        extensions = dict(get_extensions() or {}) if get_extensions is not None else {}
    except ClientError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise BrokerUnavailableError(f"sasl_oauth_token_provider gave no token ({kind})") from error
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthenticationError("sasl_oauth_token_provider gave a value that is no bearer token (RFC 6750)")
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise AuthenticationError(f"sasl_oauth_token_provider gave an invalid extension {name!r}")
    return token, extensions
