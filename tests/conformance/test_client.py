"""Our client against our broker over real sockets, through a proxy that breaks the network where told."""

import asyncio
from pathlib import Path

import pytest

from faults.wire import Wire
from tests.conformance.client_site import FIRST, TOPIC, Site
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    NoOffsetError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TimestampType,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_what_was_produced_is_consumed_byte_for_byte(site: Site, compression: str | None) -> None:
    await site.create()
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("none", None), ("trace", b"again"))
    sent = [
        (b"key", b"value" * 100, headers, 1_700_000_000_000),
        (None, b"", (), 1_700_000_000_005),
        (b"", None, (), 1_600_000_000_000),
    ]
    async with site.producer(compression_type=compression) as producer:
        for key, value, some, timestamp in sent:
            await producer.send(TOPIC, value, key=key, headers=some, timestamp_ms=timestamp)
    async with site.consumer(TOPIC) as consumer:
        found = [await consumer.getone() for _ in sent]
    assert [(record.key, record.value, record.headers, record.timestamp) for record in found] == sent
    assert [record.offset for record in found] == [0, 1, 2]
    assert {record.timestamp_type for record in found} == {TimestampType.CREATE_TIME}


async def test_the_metadata_names_where_and_as_what_a_record_is_stored(site: Site) -> None:
    await site.create(2)
    async with site.producer() as producer:
        first = await producer.send_and_wait(TOPIC, b"a", partition=1, timestamp_ms=5)
        second = await producer.send_and_wait(TOPIC, b"b", partition=1)
        assert (first.topic, first.partition, first.offset, first.timestamp) == (TOPIC, 1, 0, 5)
        assert (second.offset, second.sequence, second.producer_epoch) == (1, 1, 0)
        async with site.admin() as admin:
            (known,) = (await admin.describe_producers(TOPIC, [1]))[TopicPartition(TOPIC, 1)]
        assert (known.producer_id, known.producer_epoch, known.last_sequence) == (second.producer_id, 0, 1)


async def test_a_wiped_broker_gets_a_new_producer_id_and_the_records(site: Site, tmp_path: Path) -> None:
    await site.create()
    async with site.producer() as producer:
        await producer.send_and_wait(TOPIC, b"lost with the disk")
        await site.broker.stop()
        site._data_dir = tmp_path / "another"
        await site.start()
        site.proxy.cut_connections()
        # Over a new connection, so that no attempt is lost with the old one, which would be uncertain.
        await producer._cluster.refresh()
        metadata = await producer.send_and_wait(TOPIC, b"stored")
        assert metadata.offset == 0
    assert await site.stored() == [b"stored"]


async def test_a_position_is_exact_after_reads_that_were_cancelled(site: Site) -> None:
    await site.create()
    async with site.producer() as producer, site.consumer(TOPIC) as consumer:
        seen: list[bytes] = []

        async def write() -> None:
            for number in range(200):
                await producer.send_and_wait(TOPIC, b"%03d" % number)

        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(seen) < 200:
                reading = asyncio.ensure_future(consumer.getone())
                await asyncio.wait([reading], timeout=0.0005)
                reading.cancel()
                await asyncio.wait([reading])
                if not reading.cancelled():
                    seen.append(reading.result().value)
                    assert await consumer.position(FIRST) == len(seen)
        await writing
    assert seen == [b"%03d" % number for number in range(200)]


async def test_seeks_pauses_and_limits_do_what_they_say(site: Site) -> None:
    await site.create(2)
    other = TopicPartition(TOPIC, 1)
    async with site.producer() as producer:
        for number in range(10):
            await producer.send(TOPIC, b"%d" % number, partition=number % 2, timestamp_ms=1_000 * number)
    async with site.consumer() as consumer:
        consumer.assign([FIRST, other])
        consumer.pause(other)
        found = await consumer.getmany(timeout_ms=5_000, max_records=3)
        assert [record.value for record in found[FIRST]] == [b"0", b"2", b"4"]
        assert set(found) == {FIRST}
        assert consumer.paused() == {other}
        assert await consumer.position(FIRST) == 3
        assert consumer.lag(FIRST) == consumer.metrics()["records-lag-max"] == 2
        consumer.seek(FIRST, 1)
        assert (await consumer.getone()).offset == 1
        consumer.seek_to_end(FIRST)
        assert await consumer.position(FIRST) == 5
        assert await consumer.getmany(timeout_ms=20) == {}
        for timestamp, offset in ((3_500, 2), (1 << 50, 5)):
            consumer.seek_to_timestamp(timestamp, FIRST)
            assert await consumer.position(FIRST) == offset
        consumer.resume(other)
        assert (await consumer.getone()).value == b"1"
        consumer.seek_to_beginning(FIRST)
        assert (await consumer.getone(FIRST)).value == b"0"
        assert await consumer.beginning_offsets([FIRST]) == {FIRST: 0}
        assert await consumer.end_offsets([FIRST, other]) == {FIRST: 5, other: 5}
        times = await consumer.offsets_for_times({FIRST: 3_500, other: 10_000})
        assert times[FIRST] is not None
        assert (times[FIRST].offset, times[FIRST].timestamp) == (2, 4_000)
        assert times[other] is None
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek(TopicPartition(TOPIC, 9), 0)


@pytest.mark.parametrize("offset", [2, 99])
async def test_an_offset_that_the_log_does_not_hold_follows_the_policy(site: Site, offset: int) -> None:
    await site.create()
    async with site.producer() as producer:
        for number in range(7):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    async with Wire.connected(site.broker.port) as wire:
        assert await wire.delete_records(TOPIC, {0: 6}) == [ErrorCode.NONE]
    async with site.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        consumer.seek(FIRST, offset)
        assert (await consumer.getone()).value == b"6"
        assert await consumer.beginning_offsets([FIRST]) == {FIRST: 6}
    async with site.consumer(TOPIC, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetError):
            await consumer.getone()
        consumer.seek(FIRST, offset)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=f"{offset}"):
                await consumer.getone()
        assert await consumer.position(FIRST) == offset
        consumer.seek(FIRST, 6)
        assert (await consumer.getone()).value == b"6"


async def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_skipped(site: Site) -> None:
    await site.create()
    async with site.producer() as producer:
        for value in b"1", b"x", b"3":
            await producer.send(TOPIC, value)
    async with site.consumer(TOPIC, value_deserializer=lambda raw: int(raw)) as consumer:
        assert [each.value for each in (await consumer.getmany(timeout_ms=60_000))[FIRST]] == [1]
        for read in consumer.getmany(timeout_ms=60_000), consumer.getone():
            with pytest.raises(RecordDeserializationError, match="ValueError: invalid literal") as caught:
                await read
            assert caught.value.offset == await consumer.position(FIRST) == 1
        consumer.seek(FIRST, caught.value.offset + 1)
        assert (await consumer.getone()).value == 3


@pytest.mark.parametrize("group_id", [None, "group"])
async def test_a_topic_that_is_not_there_is_read_from_its_first_record_once_it_is(
    site: Site, group_id: str | None
) -> None:
    async with site.consumer("later", group_id=group_id, auto_offset_reset="latest") as consumer:
        await until(lambda: "later" in consumer._awaited)
        async with site.producer() as producer:
            for value in (b"1", b"2"):
                await producer.send_and_wait("later", value)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert [(await consumer.getone()).value for _ in range(2)] == [b"1", b"2"]


async def test_an_administrator_sees_and_changes_what_there_is(site: Site) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)

    async def retention(admin: Admin) -> str | None:
        ((described, entries),) = (await admin.describe_configs([resource])).items()
        assert repr(described) == repr(resource)
        return next(entry.value for entry in entries if entry.name == "retention.ms")

    async with site.admin() as admin:
        await admin.create_topics([NewTopic(TOPIC, 2, 1, {"retention.ms": "1000"})])
        with pytest.raises(TopicAlreadyExistsError):
            await admin.create_topics([NewTopic(TOPIC, 2, 1)])
        await admin.create_topics([NewTopic("checked", 1, 1)], validate_only=True)
        assert await admin.list_topics() == [TOPIC]
        assert await retention(admin) == "1000"
        await admin.alter_configs({resource: {"retention.ms": "2000"}})
        assert await retention(admin) == "2000"
        await admin.alter_configs({resource: {"retention.ms": None}})
        assert await retention(admin) == "604800000"
        await admin.create_partitions({TOPIC: 4})
        (described,) = await admin.describe_topics([TOPIC])
        assert [each.partition for each in described.partitions] == [0, 1, 2, 3]
        cluster = await admin.describe_cluster()
        assert [(node.host, node.port) for node in cluster.brokers] == [(site.proxy.host, site.proxy.port)]
        await admin.delete_topics([TOPIC])
        with pytest.raises(UnknownTopicError):
            await admin.describe_topics([TOPIC])


async def test_a_deleted_topic_comes_back_only_if_records_are_sent_to_it(site: Site) -> None:
    async with site.producer() as producer, site.admin() as admin:
        for topic in ("deleted", "live"):
            await producer.send_and_wait(topic, b"x")
        await admin.delete_topics(["deleted"])
        for _ in range(2):
            await producer._cluster.refresh()
            await producer.send_and_wait("live", b"x")
        await producer.send_and_wait("another", b"x")
        assert await admin.list_topics() == ["another", "live"]
        await producer.send_and_wait("deleted", b"x")
        assert await admin.list_topics() == ["another", "deleted", "live"]


async def test_an_answer_that_is_held_back_delays_nobody_who_fetches(site: Site) -> None:
    await site.create()
    async with site.consumer(TOPIC, fetch_max_wait_ms=25_000) as consumer, site.producer() as producer:
        reading = asyncio.ensure_future(consumer.getone())
        await site.proxy.wait_until(lambda: bool(site.proxy.in_flight(ApiKey.FETCH)))
        async with asyncio.timeout(20):
            assert await consumer.end_offsets([FIRST]) == {FIRST: 0}
            await producer.send_and_wait(TOPIC, b"x")
            assert (await reading).value == b"x"
