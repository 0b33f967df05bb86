"""The sockets of a broker's listeners.

Owns binding. It is done before anything else is started, so that a port in use is reported early.
"""

import errno
import os
import socket
from typing import NamedTuple

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listeners import ListenerConfig
from tidelog.broker.security.tls import ListenerTls
from tidelog.protocol.settings import ConfigError

_IPV4_IN_IPV6 = "::ffff:"


class BindError(Exception):
    """The broker cannot listen on an address; the message says why and which setting to change."""


class Endpoint(NamedTuple):
    """A listener and the socket that is bound for it."""

    config: ListenerConfig
    socket: socket.socket
    tls: ListenerTls | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self.socket.getsockname()[1])

    def listener_at(self, local_address: object) -> Listener:
        """The listener as a client sees it that is connected to `local_address` (of the accepted socket)."""
        host = self.config.advertised_host
        if not host and isinstance(local_address, tuple):
            host = str(local_address[0]).removeprefix(_IPV4_IN_IPV6)
        return Listener(self.config.name, host, self.config.advertised_port or self.port)


def bind(host: str, port: int, setting: str) -> socket.socket:
    """A bound socket that does not listen yet. Raises BindError, which names `setting` as its cause."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise BindError(f"cannot listen on {host}: {error.strerror}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setblocking(False)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise bind_error(host, port, setting, error) from None
    return listening


def bind_error(host: str, port: int, setting: str, error: OSError) -> BindError:
    """The error for `host` and `port`, chosen by `setting`, when they cannot be bound."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    advice = {
        errno.EADDRINUSE: f"stop what uses it, or choose another port (setting {setting}; 0: any free one)",
        errno.EADDRNOTAVAIL: "this machine does not have that address; 0.0.0.0 listens on all that it has",
        errno.EACCES: f"this user may not use the port; choose 1024 or larger (setting {setting})",
    }.get(error.errno or 0, f"choose another address or {setting}")
    return BindError(f"cannot listen on {host} port {port}: {reason}; {advice}")


def bind_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """The sockets of the configured listeners. Raises BindError, and ConfigError for certificates."""
    endpoints: list[Endpoint] = []
    try:
        for listener in config.listener_configs:
            tls = None
            if listener.security_protocol.has_tls:
                own = config.of_listener(listener.name)
                has_sasl = listener.security_protocol.has_sasl
                tls = ListenerTls(own, listener.name, names_users=not has_sasl)
            bound = bind(listener.host, listener.port, listener.setting)
            endpoints.append(Endpoint(listener, bound, tls))
    except (BindError, ConfigError):
        for endpoint in endpoints:
            endpoint.socket.close()
        raise
    return endpoints
