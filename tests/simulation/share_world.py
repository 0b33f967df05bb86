"""One seed of share groups: workers that share the records of a topic, while all is broken and healed.

Owns the workers, each of which is killed, paused and begun again, and what holds at the end: each record was
accepted, or archived after as many deliveries as the limit says, with a dead letter. What holds meanwhile is
in `share_checks`.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from faults.checker import Kind, Stored
from faults.marks import mark_of
from faults.readback import read_all, read_to_end
from tests.simulation.virtual_loop import Node
from tests.simulation.workloads import LOG, PATIENT
from tests.simulation.world import World
from tidelog import (
    AcknowledgementError,
    Admin,
    ClientError,
    ConfigResource,
    ConfigResourceType,
    ConsumerRecord,
    DeadLetter,
    NewTopic,
    ShareConsumer,
    ShareRecord,
)
from tidelog.broker.coordinator.share_states.state import SharePartitionKey

GROUP: Final = "pool"
DEAD: Final = "dlq.pool"
LOCK_S: Final = 1.0
_WORKERS: Final = 3
_DEAD_LETTERS: Final = {
    "errors.deadletterqueue.topic.name": DEAD,
    "errors.deadletterqueue.copy.record.enable": "true",
}
SETTINGS: Final[dict[str, Any]] = {
    "group_share_min_record_lock_duration_ms": 1,
    "group_share_record_lock_duration_ms": int(LOCK_S * 1000),
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_session_timeout_ms": 3_000,
    "group_share_session_timeout_ms": 3_000,
    "share_coordinator_state_topic_prune_interval_ms": 2_000,
}


class ShareWorld(World):
    """`shape.inputs` does not count here."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._limit = self.rng.choice((2, 5, 10))
        settings = SETTINGS | {
            "group_share_delivery_count_limit": self._limit,
            "share_coordinator_state_topic_num_partitions": len(self.brokers),
            "share_coordinator_state_topic_replication_factor": self.shape.replicas,
            "share_coordinator_snapshot_update_records_per_snapshot": self.rng.choice((0, 3, 500)),
        }
        for broker in self.brokers:
            broker.settings |= settings
        self.programs |= {f"worker-{number}": self._work for number in range(_WORKERS)}

    async def _play(self) -> None:
        for broker in self.brokers:
            broker.start()
        await self.until_served()
        await self.observer.start(self._prepare())
        for machine in ("writer", *(f"worker-{number}" for number in range(_WORKERS))):
            self._start_other(machine)
        await self._break()
        self._heal()
        await self.observer.start(self._settle())

    async def _prepare(self) -> None:
        partitions, replicas = len(self.brokers), self.shape.replicas
        await make_group(self.address, LOG, partitions, replicas, **_DEAD_LETTERS)
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        async with Admin(bootstrap_servers=self.address) as admin:
            await admin.create_topics([NewTopic(DEAD, partitions, replicas, enabled)])

    def _break_processor(self) -> None:
        self._break_other()

    async def _work(self, node: Node) -> None:
        rng = random.Random(node.name)
        while True:
            with suppress(ClientError):
                async with member(self.address, LOG, max_poll_records=8) as consumer:
                    async for record in consumer:
                        await self._process(rng, record)
                        if rng.random() < 0.3:
                            with suppress(AcknowledgementError):
                                await consumer.commit()
            await asyncio.sleep(0.2)

    async def _process(self, rng: random.Random, record: "ShareRecord[Any, Any]") -> None:
        drawn = 1 if self.is_healed else rng.random()
        if drawn < 0.1:
            record.release()
        elif drawn < 0.15:
            record.reject()
        elif drawn < 0.25:
            async with record.processing():
                await self.loop.after(rng.random() * 2 * LOCK_S)
        else:
            if drawn < 0.3:
                await self.loop.after(rng.random() * 2 * LOCK_S)
            record.accept()

    async def _settle(self) -> None:
        await self.until_served()
        try:
            await self.others["writer"].start(self.writers.settle())
            self.run.findings += await self.writers.judge()
            logs = await read_all(self.address, LOG, len(self.brokers), 60)
        except (TimeoutError, ClientError) as error:
            self.run.find(Kind.HANGING, f"a writer or a reader waits long after all is healed: {error!r}")
            return
        ends = {partition: len(records) for partition, records in logs.items() if records}
        end = self.loop.time() + self.shape.settle_s
        while (starts := await self._starts()) != ends:
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, f"a share group is at {starts} long after all is healed: {ends}")
                return
            await asyncio.sleep(0.5)
        topic = self.facts.catalog.topic(LOG)
        assert topic is not None
        letters = await self._dead_letters()
        for partition, end_offset in ends.items():
            key = SharePartitionKey(GROUP, topic.topic_id, partition)
            for offset in self.share_checks.never_done(key, end_offset, self._limit):
                self.run.find(Kind.MISSING, f"{LOG}-{partition} at offset {offset} was passed over")
            self._judge_dead_letters(key, logs[partition], letters.get(partition, {}))
        self.run.done["records of share groups"] = sum(ends.values())
        self.run.done["accepted records"] = len(self.share_checks.done)
        self.run.done["locks that ended"] = self.share_checks.expired

    async def _dead_letters(self) -> Mapping[int, Mapping[int, list[ConsumerRecord]]]:
        """By the partition and the offset of the record each is of."""
        letters: dict[int, dict[int, list[ConsumerRecord]]] = {}
        async with asyncio.timeout(60):
            async for found in read_to_end(self.address, DEAD, len(self.brokers)):
                for key, records in found.items():
                    for record in records:
                        of_partition = letters.setdefault(key.partition, {})
                        of_partition.setdefault(DeadLetter.of(record).offset, []).append(record)
        return letters

    def _judge_dead_letters(
        self,
        key: SharePartitionKey,
        records: Sequence[Stored],
        letters: Mapping[int, Sequence[ConsumerRecord]],
    ) -> None:
        """A letter of a record that is too large for the topic has its headers only."""
        for each in records:
            where = f"{LOG}-{key.partition} at offset {each.offset}"
            found = letters.get(each.offset, ())
            if self.share_checks.needs_dead_letter(key, each.offset) and not found:
                self.run.find(Kind.MISSING, f"{where} has no dead letter")
            for letter in found:
                if letter.value is not None and mark_of(letter.key, letter.value) != each.mark:
                    self.run.find(Kind.INVENTED, f"{where} is another record in its dead letter")
        self.run.done["dead letters"] += len(letters)

    async def _starts(self) -> dict[int, int]:
        with suppress(ClientError):
            async with Admin(bootstrap_servers=self.address, **PATIENT) as admin:
                found = await admin.groups.share_offsets(GROUP)
                return {key.partition: each.start_offset for key, each in found.items() if each.start_offset}
        return {}


def member(address: str, topic: str, **settings: Any) -> "ShareConsumer[Any, Any]":
    return ShareConsumer(
        topic, group_id=GROUP, bootstrap_servers=address, fetch_max_wait_ms=300, **{**PATIENT, **settings}
    )


async def make_group(address: str, topic: str, partitions: int, replicas: int, **configs: str) -> None:
    """A topic, and a group that reads it from its beginning."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(topic, partitions, replicas)])
        group = ConfigResource(ConfigResourceType.GROUP, GROUP)
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest", **configs}})
