"""Where a run happens: brokers, each behind a proxy and on a disk that can lose what was not synced.

Owns the settings and the folder of one. Invariant: all of it has ended when the block has.
"""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from faults.etcd import EtcdMembers
from faults.process import BrokerProcess
from faults.proxy import FaultProxy
from faults.schedule import Step
from tidelog.protocol.schema import ApiKey

SESSION_MS: Final = 2_000
"""Of several brokers: how long one may give no sign of life."""


class User(Protocol):
    """A client of the brokers that a step can disturb: a writer, or the processors of one id."""

    async def disturb(self, step: Step) -> None: ...


@dataclass(eq=False)
class Node:
    """A broker."""

    broker: BrokerProcess
    proxy: FaultProxy
    data_dir: Path
    journal: Path


@dataclass
class Site:
    """What can be broken. `api_keys`: the requests that faults of the network hit."""

    nodes: Sequence[Node]
    members: EtcdMembers | None = None
    users: Sequence[User] = ()
    api_keys: Sequence[ApiKey] = field(default=(ApiKey.PRODUCE,))
    replicas: int = 1
    """Of each partition."""
    reading_rack: str | None = None
    """The rack of consumers that read along: where a broker has it, they read from its replicas."""

    @property
    def address(self) -> str:
        """Where clients reach the brokers through the proxies."""
        return ",".join(f"{node.proxy.host}:{node.proxy.port}" for node in self.nodes)

    @property
    def direct_address(self) -> str:
        """Where clients reach the brokers themselves, if they can."""
        return self.address

    async def settle(self) -> None:
        """Wait until all replicas have what is stored. Raises TimeoutError."""

    @property
    def brokers(self) -> list[BrokerProcess]:
        return [node.broker for node in self.nodes]

    def node_of(self, topic: str, partition: int) -> Node:
        """The one that has the folder of a partition; the first where none has."""
        name = f"{topic}-{partition}"
        return next((node for node in self.nodes if (node.data_dir / name).exists()), self.nodes[0])

    async def terminate(self) -> int:
        """SIGTERM to each, one after the other; an exit code that is not 0, if any."""
        return max([await broker.terminate() for broker in self.brokers])


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@asynccontextmanager
async def site_of(
    data_dir: Path, broker_settings: Mapping[str, object], sync_delay_ms: int, thread_share: float
) -> AsyncIterator[Site]:
    """A broker with its files in `data_dir`."""
    journal = data_dir.parent / "synced"
    disk = str(sync_delay_ms), str(thread_share)
    command = (sys.executable, "-m", "faults.honest_disk", str(journal), *disk)
    async with FaultProxy("127.0.0.1", 0) as proxy:
        settings = {"advertised.host": proxy.host, "advertised.port": proxy.port, **broker_settings}
        async with BrokerProcess(data_dir, settings=settings, command=command) as broker:
            proxy.retarget(broker.port)
            yield Site([Node(broker, proxy, data_dir, journal)])
