"""The settings of each process of a broker that has several (`tidelog serve --processes N`).

Owns what differs between them. All processes accept clients on the ports of the settings, and learn there the
own port of each process from the metadata. Process K listens for itself on the port that is 100 * (K + 1)
above, so that the ports of listeners next to each other do not meet. Its node.id is K above the setting.

Pure.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.cluster_settings import UNIX
from tidelog.broker.configuration.listeners import ADVERTISED_LISTENERS, LISTENERS, ListenerConfig
from tidelog.broker.storage.process_folders import folder_of, store_socket
from tidelog.protocol.settings import ConfigError

_STRIDE: Final = 100
_LARGEST_PORT: Final = 65535


def of_processes(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """The settings of each process. Raises ConfigError if their ports meet, or another store is set."""
    if config.cluster_store:
        raise ConfigError(
            f"processes: several share a catalog in the data folder; cluster.store is {config.cluster_store}:"
            " set one of the two, and with etcd start a broker for each core"
        )
    used = {listener.port: f"{listener.name} ({listener.port})" for listener in config.listener_configs}
    if config.http_port > 0:
        used[config.http_port] = f"http.port ({config.http_port})"
    for process in range(count):
        for listener in config.listener_configs:
            if not listener.port:
                continue
            port = _own_port(listener.port, process)
            if port > _LARGEST_PORT:
                raise ConfigError(
                    f"processes: process {process} would listen on port {port} for {listener.name}, and a "
                    f"port is at most {_LARGEST_PORT}; choose one below {_LARGEST_PORT - _STRIDE * count}"
                )
            if port in used:
                raise ConfigError(
                    f"processes: process {process} would listen on port {port} for {listener.name}, which is "
                    f"{used[port]}; choose ports that are not whole hundreds apart, or less than 100"
                )
            used[port] = f"the port of process {process} for {listener.name}"
    return [config.with_settings(dict(_changed(config, process))) for process in range(count)]


def _own_port(port: int, process: int) -> int:
    return port + _STRIDE * (process + 1) if port else 0


def _changed(config: BrokerConfig, process: int) -> Iterator[tuple[str, object]]:
    yield "node.id", config.node_id + process
    yield "data.dir", folder_of(config.data_dir, process)
    yield "cluster.store", f"{UNIX}{store_socket(config.data_dir)}"
    own = [_own(listener, process) for listener in config.listener_configs]
    if config.listeners:
        yield LISTENERS, [each.listened for each in own]
        if config.advertised_listeners:
            yield ADVERTISED_LISTENERS, [each.advertised for each in own]
        return
    for each, prefix in zip(own, ("", "internal."), strict=False):
        yield f"{prefix}port", each.port
        yield f"{prefix}advertised.port", each.advertised_port


def _own(listener: ListenerConfig, process: int) -> ListenerConfig:
    return listener._replace(
        port=_own_port(listener.port, process), advertised_port=_own_port(listener.advertised_port, process)
    )
