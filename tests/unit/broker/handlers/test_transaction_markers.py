"""WriteTxnMarkers over real services: a marker is durable when it is answered; each partition fails alone."""

from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, iter_batches, read_marker
from tidelog.protocol.schema import ApiKey

PRODUCER = 7


def marker_of(
    *topics: tuple[str, list[int]], epoch: int = 0, coordinator: int = 3, commit: bool = True
) -> Any:
    return {
        "producer_id": PRODUCER,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        "coordinator_epoch": coordinator,
    }


async def write(asker: Asker, *markers: Any, version: int = 1) -> list[list[tuple[str, int, int]]]:
    answer = await asker.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=list(markers))
    assert all(marker.producer_id == PRODUCER for marker in answer.markers)
    return [
        [
            (topic.name, part.partition_index, part.error_code)
            for topic in marker.topics
            for part in topic.partitions
        ]
        for marker in answer.markers
    ]


async def begin(asker: Asker, epoch: int) -> None:
    """A transaction of the producer."""
    builder = RecordBatchBuilder()
    builder.append(asker.clock(), None, b"v")
    batch = bytes(builder.build(producer_id=PRODUCER, producer_epoch=epoch, is_transactional=True))
    await asker.replica("t").append_as_coordinator(batch, asker.clock())


@pytest.mark.parametrize("version", [1, 2])
async def test_a_marker_is_durable_when_it_is_answered(asker: Asker, version: int) -> None:
    await asker.create("t", 2)
    assert await write(asker, marker_of(("t", [0, 1]), commit=False), version=version) == [
        [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE)]
    ]
    for index in (0, 1):
        log = asker.replica("t", index).log
        assert log.flushed_end_offset == log.end_offset == 1
        ((_, header),) = iter_batches(log.read(Read(0, 1000, 1)).records[0])
        assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
        assert read_marker(log.read(Read(0, 1000, 1)).records[0]) == (False, 3)


async def test_a_marker_that_arrives_late_ends_no_later_transaction(asker: Asker) -> None:
    """Its first request was given up and asked again, and the producer goes on in the epoch of the marker."""
    await asker.create("t")
    late = marker_of(("t", [0]), epoch=1) | {"transaction_version": 2}
    await begin(asker, epoch=0)
    assert await write(asker, late, version=2) == [[("t", 0, ErrorCode.NONE)]]
    await begin(asker, epoch=1)
    assert await write(asker, late, version=2) == [[("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]]
    assert asker.replica("t").ends.last_stable == 2
    own = marker_of(("t", [0]), epoch=2) | {"transaction_version": 2}
    for _ in range(2):  # A second one, without an open transaction, changes nothing.
        assert await write(asker, own, version=2) == [[("t", 0, ErrorCode.NONE)]]
    assert asker.replica("t").ends.last_stable == asker.replica("t").log.end_offset == 5


async def test_a_marker_that_did_not_become_durable_is_not_acknowledged(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t", 2)
    replica = asker.replica("t", 1)
    monkeypatch.setattr(replica, "begin_flush", lambda: replica.fail(OSError("the disk is gone")))
    assert await write(asker, marker_of(("t", [0, 1]))) == [
        [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.KAFKA_STORAGE_ERROR)]
    ]


async def test_a_consumer_gets_markers_as_batches_of_the_log(asker: Asker) -> None:
    await asker.create("t")
    await asker.produce("t", make_batch(b"a"))
    await write(asker, marker_of(("t", [0])))
    answer = asker.call(ApiKey.FETCH, 11, fetch_request(("t", 0, 0)))
    (result,) = answer.topics[0][1]
    headers = [header for part in result.records for _, header in iter_batches(part)]
    assert [(header.base_offset, header.is_control) for header in headers] == [(0, False), (1, True)]
