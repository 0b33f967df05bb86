"""The listeners of a broker: their addresses, advertised addresses and security protocols.

Owns the syntax of `listeners`, `advertised.listeners` and `listener.security.protocol.map`, which is Kafka's,
and the meaning of `host`, `port` and similar settings as the short form of these lists.

Invariants: pure; every listener has a name and, unless the system chooses the port, an address of its own; a
listener without an advertised address advertises the address that it listens on.

Source: Kafka's SocketServerConfigs and EndPoint, KIP-103.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.broker.configuration.listener_settings import ListenerSettings, SecurityProtocol
from tidelog.protocol.settings import ConfigError

LISTENERS: Final = "listeners"
ADVERTISED_LISTENERS: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER_LISTENER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
MAIN_LISTENER: Final = "PLAINTEXT"
"""The name of the listener that `host` and `port` describe."""
INTERNAL_LISTENER: Final = "INTERNAL"
"""The name of the listener that `internal.host` and `internal.port` describe."""
_SHORT_ADVERTISED = (
    "advertised.host",
    "advertised.port",
    "internal.advertised.host",
    "internal.advertised.port",
)
_SHORT_FORMS: Mapping[str, tuple[str, ...]] = {
    LISTENERS: ("host", "port", "internal.host", "internal.port", *_SHORT_ADVERTISED),
    ADVERTISED_LISTENERS: _SHORT_ADVERTISED,
}
"""Setting -> its short forms, which cannot be set beside it."""
_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9_.%-]*)):([0-9]{1,5})")
_ALL_ADDRESSES = ("0.0.0.0", "::")
_LARGEST_PORT = 65535


class ListenerConfig(NamedTuple):
    """One listener as it is configured.

    Port 0: the system chooses. `advertised_host` "": the address that the client connected to.
    `advertised_port` 0: the port that is listened on. `setting` is the setting that names its port.
    """

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    setting: str

    @property
    def local_address(self) -> str:
        """`host:port` for a client on this machine."""
        return _address("127.0.0.1" if self.host in _ALL_ADDRESSES else self.host, self.port)

    @property
    def listened(self) -> str:
        """Its entry in `listeners`."""
        return f"{self.name}://{_address(self.host, self.port)}"

    @property
    def advertised(self) -> str:
        """Its entry in `advertised.listeners`."""
        return f"{self.name}://{_address(self.advertised_host, self.advertised_port or self.port)}"


def listeners_of(config: ListenerSettings) -> tuple[ListenerConfig, ...]:
    """The listeners that these settings describe, in their order. Raises ConfigError."""
    _check_forms(config)
    protocols = _protocols(config.listener_security_protocol_map)
    if config.listeners:
        listened = _endpoints(LISTENERS, config.listeners)
        settings = dict.fromkeys(listened, LISTENERS)
    else:
        listened = {MAIN_LISTENER: (config.host, config.port)}
        settings = {MAIN_LISTENER: "port", INTERNAL_LISTENER: "internal.port"}
        if config.internal_port >= 0:
            listened[INTERNAL_LISTENER] = (config.internal_host, config.internal_port)
        protocols = {**dict.fromkeys(listened, SecurityProtocol.PLAINTEXT), **protocols}
    _check_addresses(listened)
    advertised = _advertised(config, listened)
    return tuple(
        ListenerConfig(
            name, _protocol_of(name, protocols), host or "0.0.0.0", port, *advertised[name], settings[name]
        )
        for name, (host, port) in listened.items()
    )


def inter_broker_listener(config: ListenerSettings, listeners: Sequence[ListenerConfig]) -> ListenerConfig:
    """The listener by which brokers reach each other. Raises ConfigError."""
    wanted, protocol = config.inter_broker_listener_name.upper(), config.security_inter_broker_protocol
    if wanted and protocol:
        raise ConfigError(f"set {INTER_BROKER_LISTENER} or {INTER_BROKER_PROTOCOL}, not both")
    for listener in listeners:
        if wanted in ("", listener.name) and protocol in ("", listener.security_protocol):
            return listener
    raise ConfigError(
        f"{INTER_BROKER_LISTENER if wanted else INTER_BROKER_PROTOCOL}: expected one of the listeners "
        f"{', '.join(f'{one.name} ({one.security_protocol})' for one in listeners)}, got {wanted or protocol}"
    )


def in_force(listeners: Sequence[ListenerConfig]) -> dict[str, str]:
    """The three lists as text, by the name of the setting, also if the short form was set."""
    return {
        LISTENERS: ",".join(listener.listened for listener in listeners),
        ADVERTISED_LISTENERS: ",".join(listener.advertised for listener in listeners),
        PROTOCOL_MAP: ",".join(f"{listener.name}:{listener.security_protocol}" for listener in listeners),
    }


def _check_forms(config: ListenerSettings) -> None:
    """Refuse a list together with settings that are its short form."""
    for setting, short_forms in _SHORT_FORMS.items():
        beside = [name for name in short_forms if config.is_set(setting) and config.is_set(name)]
        if beside:
            raise ConfigError(
                f"{_with_source(config, setting)} cannot be set together with "
                f"{', '.join(_with_source(config, name) for name in beside)}: "
                f"these are the short form of {LISTENERS} and {ADVERTISED_LISTENERS}; "
                "set either the lists or the short form"
            )


def _with_source(config: ListenerSettings, name: str) -> str:
    source = config.sources.get(name.replace(".", "_"))
    return name if source is None else f"{name} (from {source})"


def _endpoints(setting: str, entries: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Name -> (host, port). Raises ConfigError."""
    endpoints: dict[str, tuple[str, int]] = {}
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry)
        port = int(match[4]) if match else 0
        if match is None or port > _LARGEST_PORT:
            raise ConfigError(
                f"{setting}: expected NAME://host:port, such as PLAINTEXT://0.0.0.0:9092, several with commas"
                f" between, got {entry!r} (a port is at most {_LARGEST_PORT}; write IPv6 in brackets)"
            )
        name = match[1].upper()
        if name in endpoints:
            raise ConfigError(
                f"{setting} names {name} twice: give each listener a name of its own, and name its security "
                f"protocol in {PROTOCOL_MAP}"
            )
        endpoints[name] = (match[2] or match[3] or "", port)
    return endpoints


def _check_addresses(listened: Mapping[str, tuple[str, int]]) -> None:
    by_address: dict[tuple[str, int], str] = {}
    for name, (host, port) in listened.items():
        if port and by_address.setdefault((host, port), name) != name:
            raise ConfigError(
                f"{by_address[host, port]} and {name} both listen on {_address(host, port)}: give each "
                "listener a port of its own"
            )


def _advertised(
    config: ListenerSettings, listened: Mapping[str, tuple[str, int]]
) -> Mapping[str, tuple[str, int]]:
    """Name -> (host, port) that is advertised to clients. Raises ConfigError."""
    if config.advertised_listeners:
        named = _endpoints(ADVERTISED_LISTENERS, config.advertised_listeners)
    else:
        named = {
            MAIN_LISTENER: (config.advertised_host, config.advertised_port),
            INTERNAL_LISTENER: (config.internal_advertised_host, config.internal_advertised_port),
        }
    for name, (host, _) in named.items() if config.advertised_listeners else ():
        if name not in listened:
            raise ConfigError(
                f"{ADVERTISED_LISTENERS} names {name}, but the listeners are {', '.join(listened)}: use one "
                f"of these names, or add {name} to {LISTENERS}"
            )
        if host in _ALL_ADDRESSES:
            raise ConfigError(
                f"{ADVERTISED_LISTENERS} cannot name {host} for {name}, because no client can connect to it: "
                "name the host by which clients reach this broker"
            )
    advertised = {}
    for name, (own_host, _) in listened.items():
        host, port = named.get(name, ("", 0))
        is_reachable = own_host and own_host not in _ALL_ADDRESSES
        advertised[name] = (host or (own_host if is_reachable else ""), port)
    return advertised


def _protocols(entries: Iterable[str]) -> dict[str, SecurityProtocol]:
    """Listener's name -> protocol. Raises ConfigError."""
    protocols: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or not colon:
            raise ConfigError(f"{PROTOCOL_MAP}: expected NAME:PROTOCOL, such as IN:PLAINTEXT, got {entry!r}")
        if name in protocols:
            raise ConfigError(f"{PROTOCOL_MAP} names {name} twice: keep one of the two")
        if protocol not in SecurityProtocol.__members__:
            raise ConfigError(
                f"{PROTOCOL_MAP} gives {name} the security protocol {protocol!r}, which is not supported: "
                f"this broker supports {', '.join(SecurityProtocol)}"
            )
        protocols[name] = SecurityProtocol(protocol)
    return protocols


def _protocol_of(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    if name not in protocols:
        raise ConfigError(
            f"the listener {name} has no security protocol: add {name}:PROTOCOL to {PROTOCOL_MAP} "
            f"(supported: {', '.join(SecurityProtocol)})"
        )
    return protocols[name]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
