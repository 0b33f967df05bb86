"""The sockets that a process of several gets from the parent process (`tidelog serve --processes N`).

Owns what is served on them: the addresses of the settings, where all processes accept clients; and the HTTP
of this process, for the one that answers on `http.port`. A connection there gets the own address of this
process, like one to its own port.
"""

import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.broker.net.endpoints import Endpoint


class Inherited(NamedTuple):
    """The bound sockets that a process gets from the parent process."""

    listeners: Mapping[str, socket.socket]
    """Listener's name -> the socket that all processes share."""
    http: socket.socket | None

    def endpoints(self, own: Iterable[Endpoint]) -> list[Endpoint]:
        """The shared addresses, each served as the own endpoint of the same listener."""
        shared = []
        for each in own:
            bound = self.listeners.get(each.config.name)
            if bound is not None:
                config = each.config._replace(advertised_port=each.config.advertised_port or each.port)
                shared.append(Endpoint(config, bound, each.tls))
        return shared
