"""A running broker on a disk that fails: what clients are told, what they can still read, what the log says.

The disk fails under one partition; another one goes on all the while.
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.conformance.disks import BadDisk, fetch_everywhere, running
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
