"""The settings of SASL: names, defaults and the meaning of each.

Owns `SaslSettings`, a part of the table of a broker's settings (`broker_config`). A setting that is marked
`per_listener` may be given for one listener (`listener_overrides`). Pure.

Source: Kafka's BrokerSecurityConfigs and SaslConfigs; KIP-306, KIP-368.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidelog.broker.configuration.listener_settings import ListenerSettings
from tidelog.protocol.settings import setting as _setting

_INT = 2**31 - 1
_LONG = 2**63 - 1
_listener_setting = partial(_setting, per_listener=True)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class SaslSettings(ListenerSettings):
    """Part of `BrokerConfig`, which checks the values."""

    sasl_enabled_mechanisms: tuple[str, ...] = _listener_setting(
        ("SCRAM-SHA-512", "SCRAM-SHA-256"),
        "SASL mechanisms that clients may use. With PLAIN the client sends its password: use it over TLS.",
        choices=MECHANISMS,
    )
    sasl_server_max_receive_size: int = _setting(
        524_288,
        "Size of the largest request of a client that is not authenticated yet.",
        low=1024,
        high=_INT,
    )
    connections_max_reauth_ms: int = _listener_setting(
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
    connection_failed_authentication_delay_ms: int = _setting(
        100,
        "Time until a failed authentication is answered and its connection closed.",
        low=0,
        high=_INT,
    )
