"""The connection settings that every client shares, as one value.

Owns the table of them and how they are read: from keywords of a client's constructor, or from options by
Kafka's names.

Invariants: a `ClusterConfig` never changes, and has at least one server. It can be pickled unless it has an
`ssl_context`. Its repr and the errors here show no secret, because the table declares which settings are
secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, Final, TypedDict

from tidelog.protocol.settings import ConfigError, as_text, hold_checked, setting, settings_of
from tidelog.wire.properties import PROPERTIES, to_settings
from tidelog.wire.token_provider import TokenProvider, is_file

_DEFAULT_PORT = 9092
_SSL: Final = "SSL"
_OAUTHBEARER: Final = "OAUTHBEARER"
PROTOCOLS: Final = ("PLAINTEXT", _SSL, "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)
_USER_AND_PASSWORD: Final = 2
_OF_CREDENTIALS: Final = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
# Which settings need one of these protocols, by the beginning of their names.
_NEEDS: Final = {"ssl_": (_SSL, "SASL_SSL"), "sasl_": ("SASL_PLAINTEXT", "SASL_SSL")}


def _context(value: object) -> SSLContext | None:
    if value is None or isinstance(value, SSLContext):
        return value
    raise ConfigError(f"ssl_context: expected an ssl.SSLContext or None, got {type(value).__name__}")


def _provider(value: object) -> TokenProvider | None:
    if value is None or isinstance(value, TokenProvider):
        return value
    raise ConfigError(
        f"sasl_oauth_token_provider: expected an object with a method token(), got {type(value).__name__}"
    )


def _servers(servers: object) -> str:
    """Servers in their one form: "host:port,host:port". Raises ConfigError for an invalid address.

    Takes such text or a list of addresses. The default port is 9092. IPv6 is in brackets: "[::1]:9092".
    """
    texts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"bootstrap_servers: expected host:port,host:port, got {servers!r}")
    found = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), str(_DEFAULT_PORT)
        bare = host.removeprefix("[").removesuffix("]")
        if not bare or "/" in bare or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap_servers: expected host:port without a scheme, got {text.strip()!r}")
        found.append(f"[{bare}]:{int(port)}" if ":" in bare else f"{bare}:{int(port)}")
    if not found:
        raise ConfigError("bootstrap_servers: expected host:port, got an empty list")
    return ",".join(found)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The connection settings. Raises ConfigError for an invalid value."""

    bootstrap_servers: str | list[str] = setting(
        f"127.0.0.1:{_DEFAULT_PORT}",
        "Brokers to ask first, as host:port,host:port or a list. They name the others.",
        read=_servers,
    )
    client_id: str = setting("tidelog", "Name of the client in the broker's logs and metrics.")
    request_timeout_ms: int = setting(40_000, "How long to wait for an answer to a request.", low=1)
    connect_timeout_ms: int = setting(10_000, "How long to wait for a connection.", low=1)
    bootstrap_refused_timeout_ms: int = setting(
        1_000,
        "How long a start tries again while every one of bootstrap_servers refuses the connection.",
        low=0,
    )
    metadata_max_age_ms: int = setting(
        300_000, "Age at which topics, partitions and leaders are asked for again.", low=1
    )
    metadata_recovery_strategy: str = setting(
        "rebootstrap",
        "What to do when no known broker answers: rebootstrap asks bootstrap_servers again, none waits.",
        choices=("rebootstrap", "none"),
    )
    retry_backoff_ms: int = setting(100, "First wait before a request is sent again. It doubles.", low=1)
    retry_backoff_max_ms: int = setting(1_000, "Longest wait before a request is sent again.", low=1)
    reconnect_backoff_ms: int = setting(50, "First wait before a new connection. It doubles.", low=1)
    reconnect_backoff_max_ms: int = setting(1_000, "Longest wait before a new connection.", low=1)
    security_protocol: str = setting("PLAINTEXT", "Protocol of the brokers' listener.", choices=PROTOCOLS)
    ssl_context: SSLContext | None = setting(
        None, "Context for TLS, instead of the other settings of TLS.", read=_context
    )
    ssl_cafile: str | None = setting(
        None, "PEM file with the certificates of CAs that sign brokers. Without it: those of the system."
    )
    ssl_certfile: str | None = setting(
        None, "PEM file with the client's certificate and its chain, perhaps with the private key."
    )
    ssl_keyfile: str | None = setting(
        None, "PEM file with the private key, if ssl_certfile does not have it."
    )
    ssl_password: str | None = setting(None, "Password of the private key.", secret=True)
    ssl_check_hostname: bool = setting(True, "Whether the broker's certificate must be for its host.")
    sasl_mechanism: str = setting("PLAIN", "SASL mechanism.", choices=MECHANISMS)
    sasl_plain_username: str | None = setting(None, "User for PLAIN and SCRAM.")
    sasl_plain_password: str | None = setting(None, "Password for PLAIN and SCRAM.", secret=True)
    sasl_oauth_token_provider: TokenProvider | None = setting(
        None, "Object whose method token() gives tokens for OAUTHBEARER.", read=_provider
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None,
        "URL of an identity provider that gives tokens for OAUTHBEARER by the client credentials grant, or"
        " of a file that contains a token (file:///run/token).",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        None, "Id of this client at the identity provider."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        None, "Secret of this client at the identity provider.", secret=True
    )
    sasl_oauthbearer_scope: str | None = setting(None, "Scope of the tokens to ask for.")

    def __post_init__(self) -> None:
        hold_checked(self)
        _check_security(self)

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in _NEEDS["ssl_"]

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in _NEEDS["sasl_"]

    def __str__(self) -> str:
        """The bootstrap servers, for messages: "host:port,host:port"."""
        return str(self.bootstrap_servers)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """("host", port) of each bootstrap server. An IPv6 address has no brackets."""
        parts = [text.rpartition(":") for text in str(self).split(",")]
        return [(host.removeprefix("[").removesuffix("]"), int(port)) for host, _, port in parts]

    def to_options(self) -> dict[str, str]:
        """The settings that differ from their defaults, as text by Kafka's names, for
        `cluster_from_options`. It has the secrets.

        Raises ConfigError for a setting that is an object of this process.
        """
        if objects := {"ssl_context", "sasl_oauth_token_provider"} & set(self._given()):
            raise ConfigError(
                f"{min(objects)} cannot be given to other processes. For TLS use ssl_cafile, ssl_certfile and"
                " ssl_keyfile, for SASL a user and a password"
            )
        named = {each.attribute: each.name for each in settings_of(ClusterConfig)}
        return {"bootstrap.servers": str(self)} | {
            named[attribute]: as_text(value) for attribute, value in self._given().items()
        }

    def _given(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by attribute."""
        values = {
            each.attribute: (getattr(self, each.attribute), each.default)
            for each in settings_of(ClusterConfig)
        }
        return {name: value for name, (value, default) in values.items() if value != default}


def _check_security(config: ClusterConfig) -> None:
    """Raises ConfigError for settings that contradict each other, or where one is missing."""
    given = config._given()
    for name in given:
        for beginning, protocols in _NEEDS.items():
            if name.startswith(beginning) and config.security_protocol not in protocols:
                raise ConfigError(
                    f"{name} needs security_protocol={' or '.join(protocols)}, not {config.security_protocol}"
                )
    if config.ssl_context is not None and (
        others := [name for name in given if name.startswith("ssl_") and name != "ssl_context"]
    ):
        raise ConfigError(f"give either ssl_context or {others[0]}, not both")
    if config.ssl_certfile is None and (config.ssl_keyfile or config.ssl_password):
        raise ConfigError("ssl_keyfile and ssl_password need ssl_certfile")
    if config.has_sasl:
        _check_mechanism(config, given)


def _check_mechanism(config: ClusterConfig, given: Mapping[str, Any]) -> None:
    of_tokens = [name for name in given if name.startswith("sasl_oauth")]
    of_users = [name for name in given if name.startswith("sasl_plain")]
    if config.sasl_mechanism != _OAUTHBEARER:
        if of_tokens:
            raise ConfigError(f"{of_tokens[0]} needs sasl_mechanism={_OAUTHBEARER}")
        if len(of_users) < _USER_AND_PASSWORD:
            raise ConfigError(
                f"sasl_mechanism={config.sasl_mechanism} needs sasl_plain_username and sasl_plain_password"
            )
        return
    if of_users:
        raise ConfigError(f"sasl_mechanism={_OAUTHBEARER} takes no user and password")
    if config.sasl_oauth_token_provider is not None:
        if len(of_tokens) > 1:
            raise ConfigError(f"give either sasl_oauth_token_provider or {of_tokens[1]}, not both")
    elif is_file(config.sasl_oauthbearer_token_endpoint_url):
        return
    elif missing := [name for name in _OF_CREDENTIALS if name not in given]:
        raise ConfigError(
            f"sasl_mechanism={_OAUTHBEARER} needs sasl_oauth_token_provider, or an identity provider:"
            f" {missing[0]} is missing"
        )


class ClusterSettings(TypedDict, total=False):
    """The keywords that every client takes: a `cluster`, and settings that override those of `cluster`."""

    cluster: ClusterConfig
    bootstrap_servers: str | list[str]
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    bootstrap_refused_timeout_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    security_protocol: str
    ssl_context: SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None


OPTIONS = PROPERTIES | {each.name for each in settings_of(ClusterConfig)}
"""The names of options: `bootstrap.servers`, `ssl.cafile`, and Kafka's properties for the same."""


def cluster_from_options(options: Mapping[str, str]) -> ClusterConfig | None:
    """The connection settings in options by Kafka's names, None if they name no server.

    Other options are ignored. Raises ConfigError.
    """
    if not options.get("bootstrap.servers"):
        return None
    return ClusterConfig(**keywords_from_options(options))


def keywords_from_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The same settings as keywords of `ClusterConfig`. Empty text is no value. Raises ConfigError."""
    settings = to_settings(options)
    given = {each.attribute: (each, settings.get(each.name)) for each in settings_of(ClusterConfig)}
    return {name: each.parse(text) for name, (each, text) in given.items() if text}
