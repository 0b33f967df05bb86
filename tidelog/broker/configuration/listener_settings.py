"""The settings of a broker's listeners: names, defaults and the meaning of each.

Owns the security protocols, and `ListenerSettings`, the first part of the table of a broker's settings
(`broker_config`). What the values mean together is in `listeners`. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidelog.broker.configuration.masking_rules import masking_rules
from tidelog.broker.configuration.settings import list_for
from tidelog.broker.configuration.urls import url_of
from tidelog.protocol.settings import setting as _setting

_PORT = 65535


class SecurityProtocol(StrEnum):
    """The security protocol of a listener, below Kafka's protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


DEFAULT_PROTOCOLS: Final = tuple(f"{protocol}:{protocol}" for protocol in SecurityProtocol)
"""Kafka's default of `listener.security.protocol.map`: a listener named like a protocol uses it."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ListenerSettings:
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    listeners: tuple[str, ...] = _setting(
        (),
        "Addresses to listen on for clients, as NAME://host:port, separated by commas; an empty host stands "
        "for all addresses, port 0 lets the system choose. Empty: PLAINTEXT on host and port, and INTERNAL "
        "on internal.host and internal.port if that is set.",
    )
    advertised_listeners: tuple[str, ...] = _setting(
        (),
        "Addresses that the broker names to clients of each listener, as NAME://host:port. A listener that "
        "is not named here advertises the address that it listens on. An empty host stands for where the "
        "client connected to, port 0 for the port listened on.",
    )
    listener_security_protocol_map: tuple[str, ...] = _setting(
        DEFAULT_PROTOCOLS,
        "Security protocol of each listener, as NAME:PROTOCOL, separated by commas. The protocols are "
        "PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    )
    inter_broker_listener_name: str = _setting(
        "",
        "Listener by which brokers connect to each other; each has one of this name. Empty: the one of "
        "security.inter.broker.protocol, or else the first.",
    )
    security_inter_broker_protocol: str = _setting(
        "",
        "Security protocol that brokers use among each other, in place of inter.broker.listener.name: the "
        "first listener with this protocol. Empty: that of the first listener.",
        choices=("", *SecurityProtocol),
    )
    host: str = _setting("127.0.0.1", "Address to listen on for clients. 0.0.0.0: all addresses.")
    port: int = _setting(9092, "Port to listen on for clients. 0: the system chooses.", low=0, high=_PORT)
    advertised_host: str = _setting(
        "", "Host that the broker names to clients. Empty: host; for 0.0.0.0 the address they connected to."
    )
    advertised_port: int = _setting(
        0, "Port that the broker names to clients. 0: the port listened on.", low=0, high=_PORT
    )
    internal_port: int = _setting(
        -1,
        "Port of a second listener with its own advertised address, for example in a container. -1: none.",
        low=-1,
        high=_PORT,
    )
    internal_host: str = _setting("0.0.0.0", "Address that the second listener listens on.")
    internal_advertised_host: str = _setting("", "As advertised.host, for the second listener.")
    internal_advertised_port: int = _setting(
        0, "As advertised.port, for the second listener.", low=0, high=_PORT
    )
    http_port: int = _setting(
        9644,
        "Port of /metrics, /healthz, /console, /api/v1 and /faults. 0: the system chooses. -1: none.",
        low=-1,
        high=_PORT,
    )
    http_security_protocol: str = _setting(
        "PLAINTEXT",
        "Security protocol of the HTTP port: PLAINTEXT or SSL (HTTPS). With SSL, the settings ssl.* "
        "apply to it too, or those that begin with listener.name.http.",
        choices=("PLAINTEXT", "SSL"),
    )
    http_host: str = _setting("", "Address that the HTTP port listens on. Empty: that of the first listener.")
    http_allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Further host names by which the HTTP port may be asked without security, such as tidelog.prod.svc. "
        "Addresses, localhost, the machine's name and the names in advertised.listeners always are.",
    )
    console_enable: bool = _setting(
        True, "Serve the console at /console of the HTTP port, and its API at /api/v1."
    )
    console_read_only: bool = _setting(False, "Make the console and its API read-only.")
    console_masking_rules: tuple[str, ...] = _setting(
        (),
        "What the console masks for who may not ALTER a topic: patterns of topics with fields, such as "
        "orders*:value.customer.email, payments:key. Without an authorizer it masks them for everybody.",
        read=list_for(masking_rules),
    )
    console_schema_registry_url: str = _setting(
        "",
        "Schema registry that the console asks for the schemas of values in Avro, Protobuf and JSON Schema, "
        "such as http://127.0.0.1:8081. Empty: none.",
        read=url_of("console.schema.registry.url", advice="set console.schema.registry.basic.auth.user.info"),
    )
    console_schema_registry_basic_auth_user_info: str = _setting(
        "", "The console's user and password at the schema registry: user:password.", secret=True
    )

    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Attribute, or name of an override -> the source of its value, for values that are not defaults."""

    def is_set(self, name: str) -> bool:
        """Whether this setting was set, or its value is not the default."""
        attribute = name.replace(".", "_")
        return attribute in self.sources or getattr(self, attribute) != getattr(type(self), attribute)
