"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: exact positions, none beyond what is durable."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import NOW_MS, Asker, fetch_request, make_batch
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.checkpoints import LOG_START_OFFSETS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def listed(
    asker: Asker, timestamp: int, *, topic: str = "t", partition: int = 0, epoch: int = -1, version: int = 7
) -> Any:
    wanted = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    answer = await asker.ask(
        ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [wanted]}]
    )
    return answer.topics[0].partitions[0]


async def filled(asker: Asker) -> None:
    """Offsets 0 to 4 with timestamps NOW + 0, 10, 40, 20, 30."""
    await asker.create("t")
    for later in (0, 10, 40, 20, 30):
        await asker.produce("t", make_batch(b"v", timestamp_ms=NOW_MS + later))


@pytest.mark.parametrize("version", range(1, 12))
async def test_latest_is_the_next_offset_and_earliest_the_first(asker: Asker, version: int) -> None:
    await filled(asker)
    latest = await listed(asker, LATEST, version=version)
    earliest = await listed(asker, EARLIEST, version=version)
    assert [(held.error_code, held.offset, held.timestamp) for held in (latest, earliest)] == [
        (0, 5, -1),
        (0, 0, -1),
    ]
    if version >= 4:
        assert (latest.leader_epoch, earliest.leader_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("later", "offset", "found"), [(-100, 0, 0), (0, 0, 0), (1, 1, 10), (11, 2, 40), (40, 2, 40)]
)
async def test_a_timestamp_gives_the_first_record_at_or_after_it(
    asker: Asker, later: int, offset: int, found: int
) -> None:
    await filled(asker)
    answer = await listed(asker, NOW_MS + later)
    assert (answer.offset, answer.timestamp) == (offset, NOW_MS + found)


async def test_a_timestamp_after_all_records_gives_none(asker: Asker) -> None:
    await filled(asker)
    answer = await listed(asker, NOW_MS + 41)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


async def test_the_largest_timestamp_has_the_offset_of_its_record(asker: Asker) -> None:
    await filled(asker)
    answer = await listed(asker, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (2, NOW_MS + 40)
    assert (await listed(asker, MAX_TIMESTAMP, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION
    await asker.create("empty")
    assert (await listed(asker, MAX_TIMESTAMP, topic="empty")).offset == -1


@pytest.mark.parametrize(
    ("timestamp", "first", "offset", "epoch"),
    [(-4, 8, 1, 0), (-5, 9, -1, -1), (-6, 11, -1, -1)],
    ids=["earliest local", "latest tiered", "earliest pending upload"],
)
async def test_a_log_without_remote_storage_answers_for_its_places_as_kafka_does(
    asker: Asker, timestamp: int, first: int, offset: int, epoch: int
) -> None:
    await filled(asker)
    await asker.ask(
        ApiKey.DELETE_RECORDS,
        1,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}],
    )
    answer = await listed(asker, timestamp, version=first)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, offset, -1, epoch)
    answer = await listed(asker, timestamp, version=first - 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_timestamp_that_means_nothing_is_unsupported(asker: Asker) -> None:
    await filled(asker)
    for timestamp in (-7, -(2**63)):
        assert (await listed(asker, timestamp, version=11)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("topic", "partition", "epoch", "code"),
    [
        ("no", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 3, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_partition_that_cannot_be_asked_has_its_code(
    asker: Asker, topic: str, partition: int, epoch: int, code: ErrorCode
) -> None:
    await filled(asker)
    answer = await listed(asker, LATEST, topic=topic, partition=partition, epoch=epoch)
    assert (answer.error_code, answer.offset) == (code, -1)


async def test_an_older_leader_epoch_is_fenced(asker: Asker) -> None:
    await filled(asker)
    asker.replica("t").leader_epoch = 2
    assert (await listed(asker, LATEST, epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_partition_named_twice_is_an_invalid_request(asker: Asker) -> None:
    await filled(asker)
    wanted = {"partition_index": 0, "timestamp": LATEST}
    answer = await asker.ask(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": "t", "partitions": [wanted, wanted]}]
    )
    assert [held.error_code for held in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def end_of(asker: Asker, epoch: int, version: int = 4) -> tuple[int, int, int]:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    answer = await asker.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": "t", "partitions": [wanted]}]
    )
    held = answer.topics[0].partitions[0]
    return held.error_code, held.leader_epoch, held.end_offset


@pytest.mark.parametrize("version", range(2, 5))
async def test_an_epoch_ends_where_the_next_one_began(asker: Asker, version: int) -> None:
    await filled(asker)
    assert await end_of(asker, 0, version) == (0, 0, 5)
    asker.replica("t").leader_epoch = 4
    await asker.produce("t", make_batch(b"v"))
    assert await end_of(asker, 0, version) == (0, 0, 5)
    assert await end_of(asker, 2, version) == (0, 0, 5)
    assert await end_of(asker, 4, version) == (0, 4, 6)
    assert await end_of(asker, 5, version) == (0, -1, -1)


async def test_the_current_epoch_of_an_empty_log_ends_at_its_start(asker: Asker) -> None:
    await asker.create("t")
    assert await end_of(asker, 0) == (0, 0, 0)


async def deleted_before(asker: Asker, offset: int, version: int = 2) -> tuple[int, int]:
    wanted = {"partition_index": 0, "offset": offset}
    answer = await asker.ask(ApiKey.DELETE_RECORDS, version, topics=[{"name": "t", "partitions": [wanted]}])
    held = answer.topics[0].partitions[0]
    return held.error_code, held.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_deleted_records_are_gone_and_stay_gone(open_asker: Open, version: int) -> None:
    asker = await open_asker()
    await filled(asker)
    assert await deleted_before(asker, 3, version) == (0, 3)
    assert (await listed(asker, EARLIEST)).offset == 3
    answer = asker.call(ApiKey.FETCH, 11, fetch_request(("t", 0, 2)))
    assert answer.topics[0][1][0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await asker.services.close()
    again = await open_asker()
    assert (await listed(again, EARLIEST)).offset == 3


async def test_minus_one_deletes_what_is_durable_though_more_is_visible(asker: Asker) -> None:
    await filled(asker)
    replica = asker.replica("t")
    replica.reconfigure(replace(replica.log.config, acks_all_durable=False))
    replica.append_as_leader(make_batch(b"v"), NOW_MS)

    class Appends:
        """Another append, between the flush for the deletion and the deletion."""

        def replica_changed(self, replica: Replica) -> None:
            replica.unwatch(self)
            replica.append_as_leader(make_batch(b"v"), NOW_MS)

    replica.watch(Appends())
    assert await deleted_before(asker, -1) == (0, 6)
    assert replica.log.end_offset == 7


@pytest.mark.parametrize("offset", [6, -2])
async def test_what_is_not_there_cannot_be_deleted(asker: Asker, offset: int) -> None:
    await filled(asker)
    assert await deleted_before(asker, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_a_start_that_could_not_be_saved_is_not_returned(asker: Asker, tmp_path: Path) -> None:
    await filled(asker)
    os.makedirs(tmp_path / "data" / LOG_START_OFFSETS / "in the way")
    assert await deleted_before(asker, 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
