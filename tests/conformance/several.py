"""Three brokers in the place of the one that these tests start, where the environment variable BROKERS is
`processes` (`tidelog serve --processes 3`) or `etcd` (three brokers whose catalog is in etcd).

Owns what the names `BrokerProcess` and `EmbeddedBroker` mean here, and which files are left out, and why.
Invariant: without BROKERS nothing differs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

import pytest

from faults.etcd import running_etcd
from faults.process import BrokerProcess as OneProcess
from faults.process_tree import descendants, kill_tree
from tests.several.processes import hold_ports_apart
from tidelog.broker.testing.embedded import EmbeddedBroker as OneEmbedded
from tidelog.client import Admin, NewTopic

KIND: Final = os.environ.get("BROKERS", "")
COUNT: Final = 3
_QUICK: Final = {"broker.session.timeout.ms": 2_000}


_LEFT_OUT: Final[Mapping[str, str]] = {
    "over raw sockets to one broker, where a client would go to the leader": "largest_requests "
    "listeners refusals wire_bounds wire_groups wire_order wire_records wire_sasl wire_semantics",
    "of listeners that brokers could not use among each other": "sasl_tokens",
    "of what is inside one broker, its data folder or its disk": "cli_verify copies disk_faults holes losses "
    "lost_catalog memory_bound read_committed secrets startup",
    "of a network or a fault before one broker": "cli_faults client client_session_batches client_sessions "
    "consumer faults mirror_destinations mirror_tasks stream_readers",
    "of the HTTP port of one broker": "console_openapi console_overview console_records "
    "console_rights console_signing_in console_visits http_security",
    "without a broker of ours": "client_tansu filtered_batches kio_headers kio_messages records_oracles",
}
"""Why -> the files that are left out with several brokers, without `test_` and `.py`."""
_LEFT_OUT_OF_PROCESSES: Final = "acls cli_users client_security ported_programs sasl tls"
"""Their fixtures make users, or read ports, inside a broker of this process."""
_FILES: Final = frozenset(
    f"test_{name}.py"
    for names in (*_LEFT_OUT.values(), _LEFT_OUT_OF_PROCESSES if KIND == "processes" else "")
    for name in names.split()
)


def is_left_out(item: pytest.Item) -> bool:
    """Whether a test is of one broker: its file is listed above, or it has the marker `one_broker`."""
    return bool(KIND) and (item.path.name in _FILES or item.get_closest_marker("one_broker") is not None)


def text_of(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings by the names of a command line, of those that have underscores and values of Python."""
    given = dict(settings)
    overrides = given.pop("listener_overrides", {})
    assert isinstance(overrides, Mapping)
    given |= overrides
    return {name.replace("_", "."): _text(value) for name, value in given.items()}


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _others(folder: Path, shared: Mapping[str, object]) -> list[OneProcess]:
    numbers = range(2, COUNT + 1)
    return [OneProcess(folder / str(number), settings={**shared, "node.id": number}) for number in numbers]


class OfProcesses(OneProcess):
    """`tidelog serve --processes 3`; the port is the one that all share."""

    def __init__(self, data_dir: Path, *, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(data_dir, settings={**(settings or {}), "processes": COUNT})

    async def start(self, timeout_ms: float = 120_000) -> int:
        if not self.port:
            self._held = hold_ports_apart(COUNT + 1)
            self.port = self._held[0].getsockname()[1]
        return await super().start(timeout_ms)

    async def kill_9(self) -> None:
        """All of them."""
        if self.pid is not None:
            kill_tree(self.pid)
        await super().kill_9()

    def pause(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self.pid is not None
        for pid in (self.pid, *descendants(self.pid)):
            os.kill(pid, number)


class OverEtcd(OneProcess):
    """The first of three `tidelog serve` over one etcd; what is done to it is done to all."""

    def __init__(self, data_dir: Path, *, settings: Mapping[str, object] | None = None) -> None:
        shared = {**_QUICK, **(settings or {})}
        super().__init__(data_dir, settings={**shared, "node.id": 1})
        self.others = [
            OneProcess(
                data_dir.with_name(f"{data_dir.name}-{number}"), settings={**shared, "node.id": number}
            )
            for number in range(2, COUNT + 1)
        ]
        self._stack = AsyncExitStack()
        self._store = ""

    async def start(self, timeout_ms: float = 120_000) -> int:
        if not self._store:
            folder = self.data_dir.with_name(f"{self.data_dir.name}-etcd")
            folder.mkdir(parents=True)
            members = await self._stack.enter_async_context(running_etcd(folder))
            self._store = f"etcd:{members.endpoints[0]}"
        for each in (self, *self.others):
            each.settings["cluster.store"] = self._store
        await asyncio.gather(super().start(timeout_ms), *(each.start(timeout_ms) for each in self.others))
        return self.port

    async def kill_9(self) -> None:
        await asyncio.gather(super().kill_9(), *(each.kill_9() for each in self.others))

    async def terminate(self, timeout_ms: float = 120_000) -> int:
        codes = await asyncio.gather(
            super().terminate(timeout_ms), *(each.terminate(timeout_ms) for each in self.others)
        )
        return max(codes)

    def pause(self) -> None:
        super().pause()
        for each in self.others:
            each.pause()

    def resume(self) -> None:
        super().resume()
        for each in self.others:
            each.resume()

    async def __aexit__(self, *_: object) -> None:
        await self.kill_9()
        await self._stack.aclose()


@asynccontextmanager
async def neighbours(data_dir: Path, settings: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Two brokers over one etcd: what the settings of a third one with the same `settings` are besides."""
    folder = data_dir.with_name(f"{data_dir.name}-etcd")
    folder.mkdir()
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_etcd(folder))
        store = f"etcd:{members.endpoints[0]}"
        shared = {**_QUICK, **text_of(settings), "cluster.store": store}
        await asyncio.gather(*map(stack.enter_async_context, _others(folder, shared)))
        yield {"cluster_store": store, "node_id": 1}


class SeveralEmbedded:
    """Has what `EmbeddedBroker` has, as far as these tests use it."""

    def __init__(self, *, settings: Mapping[str, Any] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidelog-"))
        given = {"group.initial.rebalance.delay.ms": 0, **(settings or {})}
        given.pop("port", None)
        self._process = BrokerProcess(self._folder / "data", settings=text_of(given))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._process.port}"

    async def start(self) -> None:
        await self._process.start()

    async def crash(self) -> None:
        await self._process.kill_9()

    async def restart(self) -> None:
        await self._process.restart()

    async def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name, partitions, 1, configs or {})])
        return name

    async def __aenter__(self) -> Self:
        await self._process.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.__aexit__()
        shutil.rmtree(self._folder, ignore_errors=True)


BrokerProcess: Any = {"processes": OfProcesses, "etcd": OverEtcd, "": OneProcess}[KIND]
EmbeddedBroker: Any = SeveralEmbedded if KIND else OneEmbedded
