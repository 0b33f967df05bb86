"""A running broker on a disk that fails: what clients are told, what they can still read, what the log says.

The disk fails under one partition; another one goes on all the while. What a restart finds damaged is damaged
differently in each partition of one topic, so that one start shows them all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.conformance.disks import BadDisk, create, fetch_everywhere, produce_everywhere, running
from tests.conformance.raw import RawClient, batch, connected
from tidelog.protocol.errors import ErrorCode

OFFLINE = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
FULL = [errno.ENOSPC, errno.EDQUOT]
Events = list[Any]


def told(events: Events, name: str) -> Mapping[str, Any]:
    """The one event of a name, which must say what to do."""
    (event,) = [event for event in events if event["event"] == name]
    assert event["advice"]
    assert (event["topic"], event["partition"]) == ("t", 0)
    found: Mapping[str, Any] = event
    return found


async def begin(client: RawClient) -> int:
    """Topics `t` and `other`, each with one record of one producer, acknowledged."""
    await client.create("t")
    await client.create("other")
    producer_id = await client.producer_id()
    for topic in ("t", "other"):
        assert await client.produce(batch("a", producer_id, 0), topic=topic) == (0, 0)
    return producer_id


async def the_other_goes_on(client: RawClient, producer_id: int, sequence: int) -> None:
    sent = batch("b", producer_id, sequence)
    assert await client.produce(sent, topic="other") == (0, sequence)
    ((code, records),) = await fetch_everywhere(client, "other", [0])
    assert (code, len(records)) == (0, sequence + 1)


@pytest.mark.parametrize("first_bytes", [1, 16, 17, 61, 70])
async def test_a_short_write_is_no_matter(tmp_path: Path, first_bytes: int) -> None:
    disk = BadDisk()
    async with running(tmp_path, disk) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
        disk.fail("write", 0, first_bytes)
        assert await client.produce(batch("b", producer_id, 1)) == (0, 1)
        assert await client.log() == [b"a", b"b"]
        await the_other_goes_on(client, producer_id, 1)


@pytest.mark.parametrize("number", FULL)
@pytest.mark.parametrize("first_bytes", [0, 1, 40])
async def test_on_a_full_disk_the_producer_is_told_and_goes_on_when_there_is_room(
    tmp_path: Path, number: int, first_bytes: int
) -> None:
    disk = BadDisk()
    async with running(tmp_path, disk) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
        disk.fail("write", number, first_bytes)
        with capture_logs() as events:
            for _ in range(3):
                assert await client.produce(batch("b", producer_id, 1)) == OFFLINE
        assert "free space" in told(events, "append_refused")["advice"]
        assert await client.log() == [b"a"]
        await the_other_goes_on(client, producer_id, 1)
        disk.heal()
        assert await client.produce(batch("b", producer_id, 1)) == (0, 1)
        assert await client.log() == [b"a", b"b"]
    await holds_after_restart(tmp_path, producer_id, [b"a", b"b"])


async def holds_after_restart(folder: Path, producer_id: int, values: list[bytes]) -> None:
    """On a good disk everything acknowledged is there once, and the retry of the last is stored once."""
    async with running(folder) as broker, connected(broker.port) as client:
        assert await client.produce(batch("b", producer_id, 1)) == (0, 1)
        assert await client.log() == [*values, *([b"b"] if b"b" not in values else [])]


@pytest.mark.parametrize(("operation", "first_bytes"), [("write", 0), ("write", 30), ("fdatasync", 0)])
async def test_after_an_error_of_the_disk_the_partition_is_offline_until_a_restart(
    tmp_path: Path, operation: str, first_bytes: int
) -> None:
    disk = BadDisk()
    async with running(tmp_path, disk) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
        disk.fail(operation, errno.EIO, first_bytes)
        with capture_logs() as events:
            assert await client.produce(batch("b", producer_id, 1)) == OFFLINE
        event = told(events, "partition_offline")
        assert "restart" in event["advice"]
        assert event["durable_end_offset"] == 1
        disk.heal()
        disk.calls.clear()
        assert await client.produce(batch("b", producer_id, 1)) == OFFLINE
        assert (await client.fetch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.calls == []
        await the_other_goes_on(client, producer_id, 1)
        assert b"tidelog_partitions_failed_total 1.0" in broker.metrics.render()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert "fdatasync" not in disk.calls
    await holds_after_restart(tmp_path, producer_id, [b"a"])


async def test_producers_who_wait_together_are_all_told_of_a_failed_fdatasync(tmp_path: Path) -> None:
    disk = BadDisk()
    async with running(tmp_path, disk) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
        disk.fail("fdatasync", errno.EIO)
        for sequence in range(1, 6):
            await client.send_batch(batch("b", producer_id, sequence))
        results = [await client.receive_result() for _ in range(5)]
        assert {result.error_code for result in results} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert disk.calls.count("fdatasync") == 2  # The one of `begin`, and the one that failed.
        await the_other_goes_on(client, producer_id, 1)


async def test_an_error_on_read_is_told_and_the_partition_goes_on(tmp_path: Path) -> None:
    disk = BadDisk()
    async with running(tmp_path, disk) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
        disk.fail("read", errno.EIO)
        with capture_logs() as events:
            for _ in range(3):
                answer = await client.fetch()
                assert (answer.error_code, answer.records or b"") == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert "disk" in told(events, "read_failed")["advice"]
        assert await client.produce(batch("b", producer_id, 1)) == (0, 1)
        await the_other_goes_on(client, producer_id, 1)
        disk.heal()
        assert await client.log() == [b"a", b"b"]


async def test_a_log_that_cannot_be_opened_is_offline_and_the_others_are_served(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker.port) as client:
        producer_id = await begin(client)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    disk = BadDisk()
    disk.fail("read", errno.EIO)
    with capture_logs() as events:
        async with running(tmp_path, disk) as broker, connected(broker.port) as client:
            assert "restart" in told(events, "partition_offline")["advice"]
            assert await client.produce(batch("b", producer_id, 1)) == OFFLINE
            assert (await client.fetch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await the_other_goes_on(client, producer_id, 1)
    await holds_after_restart(tmp_path, producer_id, [b"a"])


class Damaged:
    """One topic whose partitions hold the same batches, each a segment if wished; and what befalls each."""

    def __init__(self, folder: Path, producer_id: int, partitions: int) -> None:
        self.folder = folder
        self.producer_id = producer_id
        self.partitions = range(partitions)

    def paths(self, partition: int, suffix: str) -> list[Path]:
        return sorted((self.folder / f"t-{partition}").glob(f"*{suffix}"))

    def crash(self) -> None:
        """As if the process had been killed a while after its last checkpoint."""
        (self.folder / ".kafka_cleanshutdown").unlink()


async def stored(folder: Path, partitions: int, values: str, **configs: str) -> Damaged:
    async with running(folder) as broker, connected(broker.port) as client:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await create(client, "t", partitions, named)
        producer_id = await client.producer_id()
        for sequence, value in enumerate(values):
            results = await produce_everywhere(
                client, "t", range(partitions), batch(value, producer_id, sequence)
            )
            assert results == [(0, sequence)] * partitions
    return Damaged(folder, producer_id, partitions)


SIZE = len(batch("a", 0, 0))


async def restarted(topic: Damaged, check: Callable[[RawClient], Any]) -> dict[int, Mapping[str, Any]]:
    """Start the broker, let `check` ask it, and return what the start said of each partition."""
    with capture_logs() as events:
        async with running(topic.folder) as broker, connected(broker.port) as client:
            await check(client)
    return {
        event["partition"]: event
        for event in events
        if event["event"] in ("log_damage_found", "log_recovered")
    }


async def test_a_torn_tail_at_every_byte_of_the_last_batch_ends_the_log_before_it(tmp_path: Path) -> None:
    topic = await stored(tmp_path, SIZE, "abc")
    topic.crash()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for partition in topic.partitions:
        (path,) = topic.paths(partition, ".log")
        path.write_bytes(path.read_bytes()[: 2 * SIZE + partition])

    async def check(client: RawClient) -> None:
        found = await fetch_everywhere(client, "t", topic.partitions)
        assert found == [(0, [(0, b"a"), (1, b"b")])] * SIZE
        # Nobody was told that it is durable, so its producer still sends it; what was stored is known.
        for value, sequence in (("b", 1), ("c", 2)):
            sent = batch(value, topic.producer_id, sequence)
            results = await produce_everywhere(client, "t", topic.partitions, sent)
            assert results == [(0, sequence)] * SIZE

    reports = await restarted(topic, check)
    assert [reports[partition]["truncated_bytes"] for partition in topic.partitions] == list(range(SIZE))


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_flipped_bit_at_every_byte_is_never_served_and_always_told(
    tmp_path: Path, crashed: bool
) -> None:
    count = 2 * SIZE
    topic = await stored(tmp_path, count, "ab")
    if crashed:
        topic.crash()
    for partition in topic.partitions:
        (path,) = topic.paths(partition, ".log")
        data = bytearray(path.read_bytes())
        data[partition] ^= 1 << partition % 8
        path.write_bytes(data)

    async def check(client: RawClient) -> None:
        found = await fetch_everywhere(client, "t", topic.partitions)
        for partition, (code, records) in enumerate(found):
            assert code == 0
            if not in_leader_epoch(partition):
                assert records == [(0, b"a")][: partition // SIZE]

    reports = await restarted(topic, check)
    for partition in topic.partitions:
        if not in_leader_epoch(partition):
            report = reports[partition]
            assert report["event"] == "log_damage_found"
            assert report["truncated_at_offset"] == partition // SIZE
            assert report["below_recovery_point"] is crashed or report["kept_aside"]
            assert "check the disk" in report["advice"]


def in_leader_epoch(position: int) -> bool:
    """The four bytes of a batch that no CRC covers and nothing else names."""
    return position % SIZE in range(12, 16)


async def test_a_flipped_bit_in_a_closed_segment_is_refused_and_the_rest_is_served(tmp_path: Path) -> None:
    topic = await stored(tmp_path, SIZE, "abc", segment_bytes=str(SIZE))
    for partition in topic.partitions:
        path = topic.paths(partition, ".log")[1]
        data = bytearray(path.read_bytes())
        data[partition] ^= 1 << partition % 8
        path.write_bytes(data)

    async def check(client: RawClient) -> None:
        assert await fetch_everywhere(client, "t", topic.partitions) == [(0, [(0, b"a")])] * SIZE
        found = await fetch_everywhere(client, "t", topic.partitions, 1)
        for partition, result in enumerate(found):
            if not in_leader_epoch(partition):
                assert result == (ErrorCode.CORRUPT_MESSAGE, []), partition
        assert await fetch_everywhere(client, "t", topic.partitions, 2) == [(0, [(2, b"c")])] * SIZE
        sent = batch("d", topic.producer_id, 3)
        assert await produce_everywhere(client, "t", topic.partitions, sent) == [(0, 3)] * SIZE

    with capture_logs() as events:
        async with running(tmp_path) as broker, connected(broker.port) as client:
            await check(client)
    said = {event["partition"] for event in events if event["event"] in ("read_failed", "log_damage_found")}
    assert said == {partition for partition in topic.partitions if not in_leader_epoch(partition)}
    assert all(event["advice"] for event in events if event["event"] == "read_failed")


@pytest.mark.parametrize("crashed", [True, False])
async def test_missing_and_short_indexes_and_snapshots_cost_nothing_but_reading(
    tmp_path: Path, crashed: bool
) -> None:
    suffixes = (".index", ".timeindex", ".snapshot")
    cases = [(suffix, size) for suffix in suffixes for size in (None, 0, 1, 7, 30)]
    topic = await stored(
        tmp_path, len(cases), "abcdefgh", segment_bytes=str(3 * SIZE), index_interval_bytes=str(SIZE // 2)
    )
    if crashed:
        topic.crash()
    for partition, (suffix, size) in enumerate(cases):
        for path in topic.paths(partition, suffix)[-1 if suffix == ".snapshot" else 0 :]:
            if size is None:
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:size])

    async def check(client: RawClient) -> None:
        for offset, value in enumerate("abcdefgh"):
            for code, records in await fetch_everywhere(client, "t", topic.partitions, offset):
                assert (code, records[:1]) == (0, [(offset, value.encode())])
        for sequence in range(3, 8):
            again = batch("abcdefgh"[sequence], topic.producer_id, sequence)
            results = await produce_everywhere(client, "t", topic.partitions, again)
            assert results == [(0, sequence)] * len(cases)
        sent = batch("i", topic.producer_id, 8)
        assert await produce_everywhere(client, "t", topic.partitions, sent) == [(0, 8)] * len(cases)

    reports = await restarted(topic, check)
    for partition, (suffix, size) in enumerate(cases):
        if suffix == ".snapshot" and size is not None:
            assert reports[partition]["event"] == "log_damage_found"
            (problem,) = reports[partition]["corrupt_snapshots"]
            assert ".snapshot.corrupt" in problem
