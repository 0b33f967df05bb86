"""A value other than the default for each setting of a cluster, and the settings that it needs beside it."""

import ssl
from typing import Any


class Tokens:
    """What an application gives for OAUTHBEARER."""

    def token(self) -> str:
        return "abc"


_OTHER: dict[str, Any] = {
    "metadata_recovery_strategy": "none",
    "security_protocol": "SSL",
    "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_oauth_token_provider": Tokens(),
}
_USER = {
    "security_protocol": "SASL_SSL",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "hunter2",
}
_CLIENT = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://id.example/token",
    "sasl_oauthbearer_client_credentials_client_id": "reader",
    "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
}
_BESIDE: dict[str, dict[str, Any]] = {
    "ssl_keyfile": {"ssl_certfile": "cert.pem"},
    "ssl_password": {"ssl_certfile": "cert.pem"},
    "sasl_mechanism": _USER,
    "sasl_plain_username": _USER,
    "sasl_plain_password": _USER,
    "sasl_oauth_token_provider": {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
    "sasl_oauthbearer_token_endpoint_url": _CLIENT,
    "sasl_oauthbearer_client_credentials_client_id": _CLIENT,
    "sasl_oauthbearer_client_credentials_client_secret": _CLIENT,
    "sasl_oauthbearer_scope": _CLIENT,
}
OBJECTS = ("ssl_context", "sasl_oauth_token_provider")
"""Settings that text cannot hold."""


def another(each: Any) -> Any:
    """A value that is not the default."""
    if each.attribute in _OTHER:
        return _OTHER[each.attribute]
    if isinstance(each.default, bool):
        return not each.default
    return each.default + 1 if isinstance(each.default, int) else "named:7"


def with_another(each: Any) -> dict[str, Any]:
    """That value by attribute, and the settings without which it has no meaning."""
    tls = {"security_protocol": "SSL"} if each.attribute.startswith("ssl_") else {}
    return {**tls, **_BESIDE.get(each.attribute, {}), each.attribute: another(each)}
