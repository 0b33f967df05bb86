"""Topics, their partitions and settings: as the catalog and the logs have them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.console.views.topics import (
    existing_topic,
    partition_rows,
    setting_rows,
    topic_rows,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import finish


def everything(_: str) -> bool:
    return True


def listed(
    asker: Asker,
    may: Callable[[str], bool] = everything,
    contains: str = "",
    internal: bool = True,
    offset: int = 0,
    limit: int = 10,
) -> Any:
    return finish(topic_rows(asker.services, may, contains, internal, offset, limit))


async def test_topics_are_listed_by_name_a_part_at_a_time(asker: Asker) -> None:
    for name in ("b", "ab", "c", "a"):
        await asker.create(name)
    await asker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    every = ["__consumer_offsets", "a", "ab", "b", "c"]
    assert [row["name"] for row in listed(asker)["rows"]] == every
    part = listed(asker, offset=1, limit=2)
    assert [row["name"] for row in part["rows"]] == ["a", "ab"]
    assert (part["total"], part["offset"], part["limit"]) == (5, 1, 2)
    assert [row["name"] for row in listed(asker, internal=False)["rows"]] == every[1:]
    assert [row["name"] for row in listed(asker, contains="b")["rows"]] == ["ab", "b"]
    assert listed(asker, may="ab".__contains__)["total"] == 3
    assert listed(asker, offset=9) == {"total": 5, "offset": 9, "limit": 10, "rows": []}


async def test_a_topic_has_the_sums_of_its_partitions_and_its_retention(asker: Asker) -> None:
    await asker.create("t", 3, retention_ms="5000", retention_bytes="9000")
    for partition in (0, 2):
        await asker.produce("t", make_batch(b"a", b"b"), partition=partition)
    (row,) = listed(asker)["rows"]
    size_bytes = sum(asker.replica("t", index).log.size_bytes for index in range(3))
    assert size_bytes > 0
    assert row == {
        "name": "t",
        "topic_id": str(asker.topic("t").topic_id),
        "is_internal": False,
        "partitions": 3,
        "replication_factor": 1,
        "without_leader": 0,
        "under_replicated": 0,
        "offsets": 4,
        "size_bytes": size_bytes,
        "remote_size_bytes": 0,
        "cleanup_policy": "delete",
        "retention_ms": 5000,
        "retention_bytes": 9000,
    }


async def test_partitions_have_the_numbers_of_their_logs(asker: Asker) -> None:
    await asker.create("t", 3)
    await asker.produce("t", make_batch(b"a", b"b"), partition=1)
    answer = finish(partition_rows(asker.services, asker.topic("t"), 1, 2))
    assert (answer["total"], [row["partition"] for row in answer["rows"]]) == (3, [1, 2])
    row = answer["rows"][0]
    log = asker.replica("t", 1).log
    assert (row["leader"], row["replicas"], row["in_sync_replicas"]) == (1, [1], [1])
    assert (row["start_offset"], row["last_stable_offset"], row["high_watermark"]) == (0, 2, 2)
    assert (row["end_offset"], row["size_bytes"], row["segments"]) == (2, log.size_bytes, 1)


async def test_a_partition_that_is_offline_has_no_numbers_and_no_leader(asker: Asker) -> None:
    await asker.create("t", 2)
    asker.replica("t", 1).fail(OSError("the disk is gone"))
    row = finish(partition_rows(asker.services, asker.topic("t"), 1, 1))["rows"][0]
    assert (row["leader"], row["high_watermark"], row["size_bytes"]) == (-1, None, None)
    assert listed(asker)["rows"][0]["without_leader"] == 1


async def test_a_setting_has_its_source_and_what_holds_without_it(open_asker: Callable[..., Any]) -> None:
    asker: Asker = await open_asker(log_roll_ms=7_000)
    await asker.create("t", retention_ms="5000")
    rows = {row["name"]: row for row in setting_rows(asker.services, asker.topic("t"))}
    assert (
        rows["retention.ms"]["value"],
        rows["retention.ms"]["source"],
        rows["retention.ms"]["default"],
    ) == (
        "5000",
        "DYNAMIC_TOPIC_CONFIG",
        "604800000",
    )
    assert (rows["segment.ms"]["value"], rows["segment.ms"]["source"]) == ("7000", "STATIC_BROKER_CONFIG")
    assert rows["cleanup.policy"]["source"] == "DEFAULT_CONFIG"
    assert all(row["documentation"] for row in rows.values())


async def test_a_topic_that_is_not_there_is_an_error(asker: Asker) -> None:
    with pytest.raises(ApiError, match="there is no topic 'x\\\\u202e'") as caught:
        existing_topic(asker.services, "x\u202e")
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
