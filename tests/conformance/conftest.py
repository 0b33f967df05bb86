"""A real broker for clients written by others: on its own thread and loop, on a port of its own."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import uvloop

from broker.app import Broker
from broker.config import BrokerConfig


class RunningBroker:
    """A broker that serves while the test's thread does what it likes."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self.data_dir = data_dir
        config = BrokerConfig(**{"port": 0, "http_port": 0, "data_dir": data_dir, **settings})  # type: ignore[arg-type]
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self.broker = asyncio.run_coroutine_threadsafe(Broker.start(config), self._loop).result(10)
        self.address = f"127.0.0.1:{self.broker.port}"
        self.http_port = self.broker.http_port

    def stop(self) -> None:
        """Everything written is in the files of `data_dir` afterwards."""
        try:
            asyncio.run_coroutine_threadsafe(self.broker.stop(), self._loop).result(10)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests of a module; each test makes topics of its own."""
    # Its log would stand between the lines of the commands that run in this process.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()
    structlog.reset_defaults()
