"""Committed offsets against a model of dictionaries, over transactions, compaction, restarts, crashes,
deletions and expiry."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steady_loop import SteadyLoop
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.offsets.committed_offsets import Committer, is_of
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.services import Services
from tidelog.protocol.records import TransactionMarker

START_MS = 1_700_000_000_000
RETENTION_MINUTES = 10
RETENTION_MS = RETENTION_MINUTES * 60_000
GROUPS = ("a", "b", "c", "ü")
TOPICS = ("t", "u")
PRODUCERS = (7, 8)
PARTITIONS = 2
NEVER_MS = 2**62
Where = tuple[str, str, int]

wheres = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(0, 2))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(wheres, min_size=1, max_size=4), st.integers(0, 2**63 - 1)),
        st.tuples(st.just("transact"), st.sampled_from(PRODUCERS), wheres, st.integers(0, 2**63 - 1)),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
        st.tuples(st.just("delete"), wheres),
        st.tuples(st.just("delete_group"), st.sampled_from(GROUPS)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("delete_topic"), st.sampled_from(TOPICS)),
        st.tuples(st.just("wait"), st.integers(1, RETENTION_MS)),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=5,
    max_size=25,
)


class Clock:
    now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Site:
    """A broker on a folder, and what it should hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.expected: dict[Where, CommittedOffset] = {}
        self.pending: list[tuple[int, Where, CommittedOffset]] = []
        """What open transactions wrote, in the order of the log; the number is the producer id."""

    async def open(self) -> None:
        config = BrokerConfig(
            data_dir=self.folder,
            offsets_retention_minutes=RETENTION_MINUTES,
            offsets_topic_num_partitions=PARTITIONS,
            log_cleaner_min_cleanable_ratio=0.01,
            log_cleaner_backoff_ms=NEVER_MS,
        )
        self.services: Services = await open_services(config, Metrics(), self.clock)
        for topic in TOPICS:
            if self.services.catalog.topic(topic) is None:
                await self.services.topics.create(topic)
        await self.services.groups.make_topic()

    def topic_id(self, name: str) -> UUID:
        topic = self.services.catalog.topic(name)
        assert topic is not None
        return topic.topic_id

    def committed(self, topic: str, offset: int) -> CommittedOffset:
        return CommittedOffset(offset, 3, f"at {offset}", self.clock.now_ms, topic_id=self.topic_id(topic))

    async def commit(self, wanted: list[Where], offset: int) -> None:
        """Each group's share of it is one commit."""
        for group in dict.fromkeys(group for group, _, _ in wanted):
            records = []
            for where in [where for where in wanted if where[0] == group]:
                committed = self.committed(where[1], offset)
                records.append(OffsetRecord(*where, committed))
                self.forget(where)
                self.expected[where] = committed
            await self.run(group, lambda of: of.commit(group, Committer(), records))  # noqa: B023

    def forget(self, where: Where) -> None:
        """A record outside of transactions takes the place of all before it."""
        self.expected.pop(where, None)
        self.pending = [each for each in self.pending if each[1] != where]

    async def transact(self, producer: int, where: Where, offset: int) -> None:
        committed = self.committed(where[1], offset)
        self.pending = [each for each in self.pending if each[:2] != (producer, where)]
        self.pending.append((producer, where, committed))
        records, client = [OffsetRecord(*where, committed)], Committer(is_in_transaction=True)
        await self.run(
            where[0], lambda of: of.commit_in_transaction(where[0], client, (producer, 0), records)
        )

    async def end(self, producer: int, is_commit: bool) -> None:
        last = {each[1]: number for number, each in enumerate(self.pending) if each[0] == producer}
        if is_commit:
            self.expected |= {where: self.pending[number][2] for where, number in last.items()}
        self.pending = [
            each
            for number, each in enumerate(self.pending)
            if each[0] != producer and (not is_commit or number > last.get(each[1], -1))
        ]
        for partition in range(PARTITIONS):
            marker = TransactionMarker(producer, 0, 0, is_commit)
            await self.services.groups.end_transaction(partition, marker)

    def exists(self, group: str) -> bool:
        return any(where[0] == group for where in (*self.expected, *(each[1] for each in self.pending)))

    async def delete(self, where: Where) -> None:
        group, topic, partition = where
        if self.exists(group):
            await self.run(group, lambda of: of.delete(group, [(topic, [partition])]))
            self.forget(where)

    async def delete_group(self, group: str) -> None:
        if self.exists(group):
            await self.services.groups.run(group, lambda machine: partial(machine.delete_some, group))
            for where in [*self.expected, *(each[1] for each in self.pending)]:
                if where[0] == group:
                    self.forget(where)

    async def compact(self) -> None:
        for partition in range(PARTITIONS):
            replica = self.services.replicas[OFFSETS_TOPIC, partition]
            await replica.flushed()
            replica.log.roll(self.clock.now_ms)
        while await self.services.cleaner.clean_dirtiest():
            pass

    async def delete_topic(self, name: str) -> None:
        """And make another of that name."""
        await self.services.topics.delete(self.topic_id(name))
        await self.services.topics.create(name)
        self.expected = {where: held for where, held in self.expected.items() if where[1] != name}
        self.pending = [each for each in self.pending if each[1][1] != name]

    async def wait(self, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms
        await self.services.groups.sweep()
        kept_from_ms = self.clock.now_ms - RETENTION_MS
        pending = {each[1] for each in self.pending}
        self.expected = {
            where: held
            for where, held in self.expected.items()
            if where in pending or held.commit_timestamp_ms > kept_from_ms
        }

    async def restart(self, clean: bool) -> None:
        await self.services.close(clean=clean)
        await self.open()

    async def run(self, group: str, operation: Callable[[Any], Any]) -> Any:
        return await self.services.groups.run(group, lambda machine: operation(machine.offsets))

    async def check(self) -> None:
        for group in GROUPS:
            held: Mapping[str, Mapping[int, CommittedOffset]]
            held = await self.services.groups.read(group, lambda machine: machine.offsets.fetch(group, None))  # noqa: B023
            found = {
                (group, topic, partition): committed
                for topic, partitions in held.items()
                for partition, committed in partitions.items()
                if is_of(committed, self.topic_id(topic))
            }
            assert found == {where: each for where, each in self.expected.items() if where[0] == group}


async def _follow(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        await site.open()
        try:
            for name, *arguments in steps:
                await getattr(site, name)(*arguments)
                await site.check()
            await site.restart(clean=False)
            await site.check()
        finally:
            await site.services.close()


@settings(max_examples=max(5, settings().max_examples // 10))
@given(operations)
def test_what_was_acknowledged_is_told_and_nothing_else_whatever_happens(
    steps: list[tuple[Any, ...]],
) -> None:
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(_follow(steps))
