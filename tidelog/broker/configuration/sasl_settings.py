"""The settings of SASL: names, defaults and the meaning of each.

Owns `SaslSettings`, a part of the table of a broker's settings (`broker_config`). A setting that is marked
`per_listener` may be given for one listener (`listener_overrides`), one that is marked `per_mechanism` also
for one mechanism of a listener. Pure.

Source: Kafka's BrokerSecurityConfigs and SaslConfigs; KIP-306, KIP-368, KIP-768.
"""

import re
from dataclasses import dataclass
from functools import partial

from tidelog.broker.configuration.listener_settings import ListenerSettings
from tidelog.broker.configuration.urls import url_of
from tidelog.protocol.settings import ConfigError, int32_setting
from tidelog.protocol.settings import setting as _setting

_INT = 2**31 - 1
_LONG = 2**63 - 1
_listener_setting = partial(_setting, per_listener=True)
_mechanism_setting = partial(_listener_setting, per_mechanism=True)
_OWN_USER = re.compile(r"\busername\s*=")
_USERS = re.compile(r"\buser_\S+\s*=")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


def _jaas(value: object) -> str:
    if value == "" or (isinstance(value, str) and _OWN_USER.search(value) and not _USERS.search(value)):
        return str(value)
    raise ConfigError(
        "sasl.jaas.config names the user of this broker at others: expected MODULE required username=... "
        "password=...; Users of this broker are added with `tidelog user add`"
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SaslSettings(ListenerSettings):
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    sasl_enabled_mechanisms: tuple[str, ...] = _listener_setting(
        ("SCRAM-SHA-512", "SCRAM-SHA-256"),
        "SASL mechanisms that clients may use. With PLAIN the client sends its password: use it over TLS.",
        choices=MECHANISMS,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = _mechanism_setting(
        "",
        "Where the keys of tokens are: a JWK set at an https: or http: URL, or in a file (file:///path). "
        "OAUTHBEARER needs it.",
        read=url_of("sasl.oauthbearer.jwks.endpoint.url", may_be_file=True),
    )
    sasl_oauthbearer_expected_issuer: str = _mechanism_setting(
        "", "Issuer (claim iss) that a token must name. Empty: any."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _mechanism_setting(
        (),
        "Audiences (claim aud), of which a token must name one, separated by commas. Empty: any, so a token "
        "for another service of the issuer is accepted here too.",
    )
    sasl_oauthbearer_sub_claim_name: str = _mechanism_setting("sub", "Claim of a token that names its user.")
    sasl_oauthbearer_clock_skew_seconds: int = _mechanism_setting(
        30, "How far the clocks of issuer and broker may differ.", low=0, high=3600
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _mechanism_setting(
        3_600_000, "Interval at which the keys of tokens are read again.", low=1, high=_INT
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _mechanism_setting(
        100, "First wait after the keys of tokens could not be read. It doubles.", low=1, high=_INT
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _mechanism_setting(
        10_000,
        "Longest wait after the keys of tokens could not be read, and shortest time between two reads.",
        low=1,
        high=_INT,
    )
    sasl_mechanism_inter_broker_protocol: str = _setting(
        "SCRAM-SHA-512",
        "SASL mechanism by which this broker authenticates to others.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    )
    sasl_jaas_config: str = _mechanism_setting(
        "",
        "User and password of this broker at other brokers, in Kafka's form: "
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="…"; '
        "It needs the right ClusterAction on the cluster, or its user is one of super.users.",
        secret=True,
        read=_jaas,
    )
    sasl_kerberos_min_time_before_relogin: int = _setting(
        60_000,
        "Kafka's pause between two logins at a Kerberos server. It is accepted because administration "
        "tools set it, and has no effect: GSSAPI is not supported.",
        low=0,
        high=_LONG,
        dynamic=True,
        has_no_effect=True,
    )
    sasl_server_max_receive_size: int = int32_setting(
        524_288, "Size of the largest request of a client that is not authenticated yet.", low=1024
    )
    connections_max_reauth_ms: int = _mechanism_setting(
        0,
        "Longest time until a client has to authenticate again. If it then sends another request, its "
        "connection is closed. 0: only the end of a token limits the time.",
        low=0,
        high=_LONG,
    )
    connection_authentication_timeout_ms: int = _listener_setting(
        30_000,
        "Time in which a client of a listener with SASL has to authenticate. Then its connection is closed.",
        low=1,
        high=_INT,
    )
    connection_failed_authentication_delay_ms: int = int32_setting(
        100, "Time until a failed authentication is answered and its connection closed.", low=0
    )
