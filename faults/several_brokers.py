"""Three brokers over etcd, and one topic with a replica at each of them.

Owns their start, and when the replicas are in sync. Invariant: all of it has ended when the block has.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faults.etcd import BINARY, EtcdMembers, running_etcd
from faults.process import BrokerProcess
from tidelog.client import Admin, NewTopic
from tidelog.wire.metadata import PartitionInfo

BROKERS: Final = 3
WAIT_SECONDS: Final = 120.0
_LOOK_S: Final = 0.01


@dataclass(frozen=True)
class SeveralBrokers:
    """Brokers by their node ids, and the topic."""

    brokers: Mapping[int, BrokerProcess]
    members: EtcdMembers
    admin: Admin
    address: str
    topic: str

    async def partitions(self) -> Sequence[PartitionInfo]:
        """Of the topic."""
        [topic] = await self.admin.describe_topics([self.topic])
        return topic.partitions

    async def is_in_sync(self) -> bool:
        """Whether all replicas of all partitions are in sync."""
        return all(len(each.isr) == len(self.brokers) for each in await self.partitions())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Raises TimeoutError after `WAIT_SECONDS`."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():  # noqa: ASYNC110 (the brokers do not say when)
            await asyncio.sleep(_LOOK_S)


def asked(program: str, kinds: Sequence[str], what: str, count: int) -> tuple[Sequence[str], int]:
    """The kinds of faults that a command line asks for, and how many. Ends the program without an etcd."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument(f"--{what}", type=int, default=count, help="how many (default %(default)d)")
    parser.add_argument("--only", choices=kinds, help="one kind alone")
    options = parser.parse_args()
    if BINARY is None:
        parser.error("no etcd was found; apt-get install etcd-server")
    return [options.only] if options.only else kinds, getattr(options, what)


@asynccontextmanager
async def several_brokers(
    folder: Path,
    topic: str,
    partitions: int,
    members: int,
    settings: Mapping[str, object],
    command: Sequence[str] = (),
) -> AsyncIterator[SeveralBrokers]:
    """Brokers and `members` of etcd with their data in `folder`. `command` starts another broker. Raises
    BrokerProcessError."""
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(running_etcd(folder, members))
        store = {"cluster.store": etcd.store}
        brokers = {}
        for number in range(1, BROKERS + 1):
            own = {"node.id": number, **store, **settings}
            brokers[number] = broker = BrokerProcess(folder / f"broker-{number}", settings=own)
            broker.command = tuple(command) or broker.command
            await stack.enter_async_context(broker)
        address = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers.values())
        admin = await stack.enter_async_context(Admin(bootstrap_servers=address))
        await admin.create_topics([NewTopic(topic, partitions, BROKERS)])
        yield SeveralBrokers(brokers, etcd, admin, address, topic)
