"""One of the processes that serve clients: a broker whose store is the store process.

Owns the differences to a single broker: the sockets that it inherits, whom it informs that it serves, and
that it ends when the parent process has ended.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tidelog.broker.app import Broker, run, serve_until_asked, started_event
from tidelog.broker.cluster.unix_sockets import bind_at
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.net.inherited import Inherited
from tidelog.broker.observability import log_events
from tidelog.broker.processes.parent_pipe import OtherEnd, longest_silence_seconds
from tidelog.broker.storage.process_folders import http_socket


def serve(
    config: BrokerConfig, data_dir: Path, number: int, line: OtherEnd, listeners: Mapping[str, socket.socket]
) -> int:
    """Run process `number` until it is asked to end; returns the exit code.

    `config` are the settings of this process, `data_dir` is the folder of all; `listeners` are the sockets
    that all processes share, by the listener's name.
    """

    def begin(asked: asyncio.Future[str], ask: Callable[[str], None]) -> None:
        asked.get_loop().add_signal_handler(signal.SIGTERM, ask, signal.SIGTERM.name)
        line.follow(log_events.open_output, partial(ask, "the parent process has ended"))

    async def start(config: BrokerConfig) -> Broker:
        http = None if config.http_port < 0 else bind_at(http_socket(data_dir, number))
        return await Broker.start(config, inherited=Inherited(listeners, http))

    return run(
        serve_until_asked(
            config,
            begin=begin,
            start=start,
            started=lambda broker: line.serves(started_event(broker), longest_silence_seconds(config) / 4),
        )
    )
