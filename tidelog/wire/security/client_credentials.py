"""Tokens from an identity provider by the client credentials grant of OAuth 2 (RFC 6749, section 4.4).

Owns: the one HTTP request. It is what Kafka's OAuthBearerLoginCallbackHandler does. Invariants: the secret
goes over TLS, or stays on this host; neither secret nor token is in an error.
"""

import ssl
from base64 import b64encode
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import AuthenticationError, BrokerUnavailableError

_THIS_HOST: Final = ("localhost", "127.0.0.1", "::1")
_MOST_BYTES: Final = 1_000_000
_REFUSED: Final = (400, 401, 403)


class ClientCredentials:
    """A `TokenProvider` over the settings `sasl_oauthbearer_*`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config

    async def token(self) -> str:
        """Raises AuthenticationError if the provider refuses the client, BrokerUnavailableError if it does
        not answer as it should."""
        # Only clients of OAUTHBEARER need it, and it takes long to import.
        import aiohttp

        config = self._config
        url = config.sasl_oauthbearer_token_endpoint_url or ""
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _THIS_HOST):
            raise AuthenticationError("sasl.oauthbearer.token.endpoint.url must begin with https://")
        form = {"grant_type": "client_credentials"}
        if config.sasl_oauthbearer_scope:
            form["scope"] = config.sasl_oauthbearer_scope
        both = (
            config.sasl_oauthbearer_client_credentials_client_id,
            config.sasl_oauthbearer_client_credentials_client_secret,
        )
        basic = b64encode(":".join(quote(each or "", safe="") for each in both).encode()).decode()
        limit = aiohttp.ClientTimeout(total=config.connect_timeout_ms / 1000)
        try:
            context = ssl.create_default_context()
            if config.ssl_cafile is not None:
                context.load_verify_locations(config.ssl_cafile)
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(
                    url,
                    data=form,
                    headers={"Authorization": f"Basic {basic}"},
                    ssl=context,
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.status in _REFUSED:
                    raise AuthenticationError(f"{parts.hostname} gives no token: HTTP status {answer.status}")
                text = await answer.content.read(_MOST_BYTES)
                return _token_of(text, answer.status, parts.hostname or "")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            kind = type(error).__name__
            raise BrokerUnavailableError(f"{parts.hostname} gives no token ({kind})") from None


def _token_of(text: bytes, status: int, host: str) -> str:
    import json

    try:
        answer: Any = json.loads(text)
        token = answer["access_token"]
    except (ValueError, TypeError, KeyError):
        token = None
    if status != 200 or not isinstance(token, str):
        raise BrokerUnavailableError(f"{host} gives no token: HTTP status {status} without an access_token")
    return token
