"""Topics, their partitions and settings: as the catalog and the logs have them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.broker.console.asking import answer, caller_of, console_of
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.console.api import topics
from tidelog.broker.console.api.settings import setting_rows
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey


async def listed(
    asker: Asker, *, hidden: tuple[str, ...] = (), rates: Mapping[str, tuple[float, float]] = {}, **asked: Any
) -> Any:
    console = console_of(asker)
    console.history.topic_rates = rates  # type: ignore[misc]
    return await answer(topics.topics, console, caller_of(asker, hidden=hidden), **{"limit": 10, **asked})


async def of_partitions(asker: Asker, offset: int, limit: int) -> Any:
    return await answer(topics.partitions, console_of(asker), topic="t", offset=offset, limit=limit)


async def test_topics_are_listed_by_name_a_part_at_a_time(asker: Asker) -> None:
    for name in ("b", "ab", "c", "a"):
        await asker.create(name)
    await asker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    every = ["__consumer_offsets", "a", "ab", "b", "c"]
    assert [row["name"] for row in (await listed(asker))["rows"]] == every
    part = await listed(asker, offset=1, limit=2)
    assert [row["name"] for row in part["rows"]] == ["a", "ab"]
    assert (part["total"], part["offset"], part["limit"]) == (5, 1, 2)
    assert (await listed(asker, hidden=("c", "__consumer_offsets")))["total"] == 3
    assert await listed(asker, offset=9) == {"total": 5, "offset": 9, "limit": 10, "rows": []}


async def test_a_topic_has_the_sums_of_its_partitions_and_its_retention(asker: Asker) -> None:
    await asker.create("t", 3, retention_ms="5000", retention_bytes="9000")
    for partition in (0, 2):
        await asker.produce("t", make_batch(b"a", b"b"), partition=partition)
    (row,) = (await listed(asker))["rows"]
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
        "groups": 0,
        "bytes_in": 0.0,
        "bytes_out": 0.0,
        "trend": [],
        "cleanup_policy": "delete",
        "retention_ms": 5000,
        "retention_bytes": 9000,
    }


async def test_partitions_have_the_numbers_of_their_logs(asker: Asker) -> None:
    await asker.create("t", 3)
    await asker.produce("t", make_batch(b"a", b"b"), partition=1)
    answer = await of_partitions(asker, 1, 2)
    assert (answer["total"], [row["partition"] for row in answer["rows"]]) == (3, [1, 2])
    row = answer["rows"][0]
    log = asker.replica("t", 1).log
    assert (row["leader"], row["replicas"], row["in_sync_replicas"]) == (1, [1], [1])
    assert (row["start_offset"], row["last_stable_offset"], row["high_watermark"]) == (0, 2, 2)
    assert (row["end_offset"], row["size_bytes"], row["segments"]) == (2, log.size_bytes, 1)


async def test_a_partition_that_is_offline_has_no_numbers_and_no_leader(asker: Asker) -> None:
    await asker.create("t", 2)
    asker.replica("t", 1).fail(OSError("the disk is gone"))
    row = (await of_partitions(asker, 1, 1))["rows"][0]
    assert (row["leader"], row["high_watermark"], row["size_bytes"]) == (-1, None, None)
    assert (await listed(asker))["rows"][0]["without_leader"] == 1


async def test_topics_are_ordered_by_each_of_their_numbers(asker: Asker) -> None:
    for name, partitions, batches in (("a", 1, 2), ("b", 3, 1), ("c", 2, 3)):
        await asker.create(name, partitions)
        for _ in range(batches):
            await asker.produce(name, make_batch(b"v"))
    await asker.services.groups.make_topic()
    for group, topic in (("g", "b"), ("h", "b"), ("h", "a")):
        partitions = [{"partition_index": 0, "committed_offset": 0}]
        committed = [{"name": topic, "partitions": partitions}]
        await asker.ask(ApiKey.OFFSET_COMMIT, 8, group_id=group, topics=committed)
    rates = {"a": (5.0, 1.0), "c": (1.0, 5.0)}

    async def names(order: str, *hidden: str, **more: Any) -> list[str]:
        found = await listed(asker, hidden=("__consumer_offsets", *hidden), rates=rates, order=order, **more)
        return [row["name"] for row in found["rows"]]

    assert await names("name") == ["a", "b", "c"]
    assert await names("partitions") == ["b", "c", "a"]
    assert await names("offsets") == await names("size_bytes") == ["c", "a", "b"]
    assert await names("bytes_in") == ["a", "c", "b"]
    assert await names("bytes_out") == ["c", "a", "b"]
    assert await names("groups") == ["b", "a", "c"]
    assert await names("groups", "g") == ["a", "b", "c"]
    assert await names("partitions", offset=1, limit=1) == ["c"]


async def test_a_setting_has_its_source_and_what_holds_without_it(open_asker: Callable[..., Any]) -> None:
    asker: Asker = await open_asker(log_roll_ms=7_000)
    await asker.create("t", retention_ms="5000")
    described = asker.services.topics.settings.describe(asker.topic("t").configs)
    rows = {row["name"]: row for row in setting_rows(described)}
    own = rows["retention.ms"]
    assert (own["value"], own["source"], own["default"]) == ("5000", "DYNAMIC_TOPIC_CONFIG", "604800000")
    assert (rows["segment.ms"]["value"], rows["segment.ms"]["source"]) == ("7000", "STATIC_BROKER_CONFIG")
    assert rows["cleanup.policy"]["is_default"]
    assert [*rows][:2] == ["retention.ms", "segment.ms"], "those that differ come first"
    assert all(row["documentation"] for row in rows.values())


async def test_no_secret_of_the_broker_is_shown(open_asker: Callable[..., Any]) -> None:
    asker: Asker = await open_asker(console_schema_registry_basic_auth_user_info="user:covert")
    rows = setting_rows(asker.services.settings.describe())
    assert "covert" not in repr(rows)
    assert any(row["is_read_only"] for row in rows)
    assert not all(row["is_read_only"] for row in rows)


async def test_a_topic_that_is_not_there_is_an_error(asker: Asker) -> None:
    with pytest.raises(ApiError, match="there is no topic 'x\\\\u202e'") as caught:
        topics.existing_topic(asker.services, "x\u202e")
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
