"""Brokers that lack one rule of remote storage each, and the schedule that finds that: as `mutants`.

`python -m tests.simulation.tiering_mutants NAME` counts the seeds that find the lack.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from faults.checker import Kind
from tests.simulation.mutants import HUNT, Mutant, main
from tests.simulation.scenarios import TOPIC, Scenario, Stage
from tests.simulation.virtual_bucket import BucketFaults, Fate
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.tiering import tiering
from tidelog.broker.tiering.remote_log import RemoteLog
from tidelog.client import Consumer, Producer
from tidelog.protocol.types import NO_OFFSET
from tidelog.remote_log.manifest import Manifest, encode, manifest_name, manifest_number
from tidelog.remote_log.partition_objects import PartitionObjects

_RECORDS: Final = 40
_VALUE: Final = bytes(200)
_LOOKED_S: Final = 2.0
"""After so long, brokers have looked several times at what they may copy and delete."""
_BEYOND: Final = "and remote storage only up to"


async def _begun(stage: Stage) -> None:
    await stage.make_topic(configs=stage.topic_configs)
    claimed = stage.tiering_checks.manifests
    await stage.until(lambda: len(claimed) == len(stage.brokers), "a partition is not claimed")


async def _fill(stage: Stage) -> None:
    """Several segments of partition 0."""
    async with Producer(bootstrap_servers=stage.address, linger_ms=0) as producer:
        for _ in range(_RECORDS):
            await producer.send_and_wait(TOPIC, _VALUE, partition=0)


async def store_fails(stage: Stage) -> None:
    await _begun(stage)
    stage.bucket.is_down = True
    await _fill(stage)
    await stage.loop.after(_LOOKED_S)
    stage.bucket.is_down = False
    await stage.until(lambda: stage.tiering_checks.copied > 1, "nothing is copied")


async def manifests_are_not_stored(stage: Stage) -> None:
    await _begun(stage)
    stage.bucket.fate = lambda name: Fate.LOST if _is_manifest(name) else Fate.SERVED
    await _fill(stage)
    await stage.loop.after(_LOOKED_S)
    stage.bucket.fate = lambda _: Fate.SERVED
    await stage.until(lambda: stage.tiering_checks.copied > 1, "nothing is copied")


async def manifest_of_an_earlier_leader_arrives_late(stage: Stage) -> None:
    """While the one with its number is the last."""
    await _begun(stage)
    stage.bucket.faults = BucketFaults(late_s=60)
    put: list[str] = []

    def fate(name: str) -> Fate:
        if not _is_manifest(name):
            return Fate.SERVED
        put.append(name)
        if len(put) == 1:
            stage.led_by(TOPIC, 0).kill(cuts_power=False)
            return Fate.LATE
        return Fate.SERVED if name <= put[0] else Fate.LOST

    stage.bucket.fate = fate
    await _fill(stage)
    await stage.loop.after(stage.bucket.faults.late_s)
    stage.bucket.fate = lambda _: Fate.SERVED
    await stage.until(lambda: stage.tiering_checks.copied > 1, "nothing is copied")


async def transaction_that_is_aborted_later_fills_segments(stage: Stage) -> None:
    """Another one is aborted in the first of them."""
    await _begun(stage)
    async with _transactional(stage, "long") as long, _transactional(stage, "short") as short:
        for producer in (long, short):
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, _VALUE, partition=0)
        await short.abort_transaction()
        for _ in range(_RECORDS):
            await long.send_and_wait(TOPIC, _VALUE, partition=0)
        await stage.loop.after(_LOOKED_S)
        await long.abort_transaction()
    await _fill(stage)
    await stage.until(lambda: _start(stage) > _RECORDS, "the transaction does not leave the disk")
    async with Consumer(
        bootstrap_servers=stage.address, isolation_level="read_committed", max_partition_fetch_bytes=1
    ) as consumer:
        consumer.assign([(TOPIC, 0)])
        await consumer.seek_to_beginning()
        first = await consumer.getone()
    if first.offset <= _RECORDS:
        stage.run.find(Kind.BROKEN_RULE, f"the aborted record at offset {first.offset} is read")


def _transactional(stage: Stage, transactional_id: str) -> Producer:
    return Producer(bootstrap_servers=stage.address, transactional_id=transactional_id)


def _start(stage: Stage) -> int:
    services = stage.led_by(TOPIC, 0).services
    return NO_OFFSET if services is None else services.replicas[TOPIC, 0].log.start_offset


def _is_manifest(name: str) -> bool:
    return manifest_number(name.rpartition("/")[2]) is not None


def _held_first(commit: Any) -> Any:
    def changed(self: RemoteLog, manifest: Manifest) -> None:
        self._hold(manifest)
        commit(self, manifest)

    return changed


def _put_over(_: Any) -> Any:
    def commit(self: PartitionObjects, manifest: Manifest) -> None:
        self.store.put(self.path(manifest_name(manifest.number)), [encode(manifest)])

    return commit


def _any_end(_: Any) -> Callable[[Any], int]:
    return lambda ends: ends.committed  # type: ignore[no-any-return]


_of_one = partial(Scenario, is_tiered=True)
MUTANTS: Final = {
    "remote: retention": Mutant(
        "a local segment stays until its copy counts",
        ((PartitionLog, "_keeps_until_copied", lambda _: False),),
        _BEYOND,
        _of_one(store_fails),
    ),
    "remote: durable": Mutant(
        "a copy counts once its manifest is stored",
        ((RemoteLog, "_commit", _held_first),),
        _BEYOND,
        _of_one(manifests_are_not_stored),
    ),
    "remote: new": Mutant(
        "a manifest replaces no other",
        ((PartitionObjects, "commit", _put_over),),
        "does not follow",
        _of_one(manifest_of_an_earlier_leader_arrives_late, brokers=2, replicas=2),
    ),
    "remote: open": Mutant(
        "a segment with an open transaction is not copied",
        ((tiering, "copyable_end", _any_end),),
        "the aborted record",
        _of_one(transaction_that_is_aborted_later_fills_segments),
    ),
    "remote: aborted": Mutant(
        "the copy of a segment names the transactions that were aborted after it",
        ((PartitionLog, "aborted_across", lambda _: lambda self, segment: b""),),
        "the aborted record",
        _of_one(transaction_that_is_aborted_later_fills_segments),
    ),
}


if __name__ == "__main__":
    main(sys.argv[1:], MUTANTS, HUNT._replace(replicas=3, is_tiered=True))
