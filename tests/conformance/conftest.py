"""What these tests share: brokers for clients written by others, the command, our clients behind a proxy; and
no process outlives its test."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import structlog
import uvloop
from structlog.testing import capture_logs

from faults.proxy import FaultProxy
from tests.certificates import Certificates
from tests.conformance import several
from tests.conformance.client_site import Site
from tests.conformance.commands import Type, typist
from tests.conformance.crew import Crew, filled
from tests.processes import none_left
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig

if TYPE_CHECKING:
    from tests.conformance.console_site import Visitor

T = TypeVar("T")


class RunningBroker:
    """A broker that serves while the test's thread does what it likes.

    With BROKERS=etcd two more are processes beside it; with BROKERS=processes all are, without `broker`.
    """

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self.data_dir = data_dir
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.run(self._start(settings))

    async def _start(self, settings: dict[str, Any]) -> None:
        if several.KIND == "processes":
            process = several.OfProcesses(self.data_dir, settings=several.text_of(settings))
            await self._stack.enter_async_context(process)
            self.address, self.http_port = f"127.0.0.1:{process.port}", process.http_port
            return
        if several.KIND == "etcd":
            settings = {
                **settings,
                **await self._stack.enter_async_context(several.neighbours(self.data_dir, settings)),
            }
        chosen_port = {} if "listeners" in settings else {"port": 0}
        config = BrokerConfig(**{**chosen_port, "http_port": 0, "data_dir": self.data_dir, **settings})
        self.broker = await Broker.start(config)
        self._stack.push_async_callback(self.broker.stop)
        self.address = f"127.0.0.1:{self.broker.port}"
        self.http_port = -1 if self.broker.http_port is None else self.broker.http_port

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What `coroutine` returns, run on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_SECONDS)

    def stop(self) -> None:
        """Everything written is in the files of `data_dir` afterwards."""
        try:
            self.run(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_SECONDS)
            self._loop.close()


def broker_with(**settings: object) -> Any:
    """A fixture: one broker for all tests of a module; each test makes topics of its own.

    Names of settings may have dots.
    """
    named = {name.replace(".", "_"): value for name, value in settings.items()}

    @pytest.fixture(scope="module")
    def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
        # Its log would stand between the lines of the commands that run in this process.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        running = RunningBroker(tmp_path_factory.mktemp("broker"), **named)
        yield running
        running.stop()
        structlog.reset_defaults()

    return broker


broker = broker_with()


@pytest.fixture
async def crew(broker: RunningBroker) -> AsyncIterator[Crew]:
    """A crew, and a topic with records, in the module's broker."""
    made = Crew(broker.address, await filled(broker.address))
    async with made.stack:
        yield made


@pytest.fixture
def tidelog(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Type:
    """Types a command against the module's broker."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", broker.address)
    return typist(capfd)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A broker behind a proxy, and our clients in front of it."""
    async with FaultProxy("127.0.0.1", 0) as proxy:
        made = Site(proxy, tmp_path / "data")
        await made.start()
        try:
            yield made
        finally:
            await made.broker.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if several.is_left_out(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """The events that are logged from now on."""
    with capture_logs() as events:
        yield events


@pytest.fixture
def watchful_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of the console look ten times a second whether their visitor is there and may stay."""
    monkeypatch.setattr("tidelog.broker.console.live._ALIVE_SECONDS", 0.1)


@pytest.fixture
def visitor(broker: RunningBroker) -> "Visitor":
    """Of the console of the module's broker. Only its tests load what checks its answers."""
    from tests.conformance.console_site import Visitor

    return Visitor(broker.broker)
