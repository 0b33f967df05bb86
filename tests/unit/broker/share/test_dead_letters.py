"""What no member accepted is written to the group's topic for it, at least once, as Kafka writes it."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.handlers.sharing import ACCEPT, REJECT, RELEASE, Member
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.share import dead_letters
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import Record, RecordBatchBuilder, decode_batch, iter_batches
from tidelog.protocol.types import Buffer

Open = Callable[..., Any]
TOPIC = "dlq.jobs"
NAMED = {"errors.deadletterqueue.topic.name": TOPIC}
COPIED = {**NAMED, "errors.deadletterqueue.copy.record.enable": "true"}
ENABLED = {"errors_deadletterqueue_group_enable": "true"}


class FullDisk(Disk):
    """Has no room for dead letters."""

    def __init__(self) -> None:
        self._full: set[int] = set()

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        fd = super().open(path, flags)
        self._full -= {fd}
        if path.suffix == ".log" and path.parent.name.startswith(TOPIC):
            self._full.add(fd)
        return fd

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if fd in self._full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().writev(fd, buffers, position)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_BACKOFF_SECONDS", (0.001,) * 4)


def letters(asker: Asker, partition: int = 0, topic: str = TOPIC) -> list[Record]:
    replica = asker.services.replicas.get((topic, partition))
    if replica is None:
        return []
    found: list[Record] = []
    end_offset = replica.ends.committed
    while len(found) < end_offset:
        read = replica.read(Read(len(found), 1 << 20, end_offset))
        for stretch in read.records:
            for position, _ in iter_batches(stretch):
                found += decode_batch(stretch, position)
    return found


def headers(record: Record) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers}


def is_done(asker: Asker) -> bool:
    """Whether nothing of the group is in flight, or waits to be written."""
    groups = asker.services.share.partitions.of_group("pool")
    return all(each.is_idle and not each.machine.in_flight_count for each in groups)


async def joined(
    asker: Asker, *batches: bytes, partitions: int = 1, partition: int = 0, **configs: str
) -> Member:
    """A member that holds what these batches have."""
    await asker.create("jobs", partitions)
    for batch in batches:
        await asker.produce("jobs", batch, partition=partition)
    member = Member(asker, partition=partition)
    await member.join(**configs)
    await member.got()
    return member


async def test_what_is_rejected_or_delivered_too_often_becomes_a_dead_letter(asker: Asker) -> None:
    await asker.create(TOPIC, 2, **ENABLED)
    member = await joined(
        asker,
        make_batch(b"0", b"1", b"2"),
        partitions=4,
        partition=3,
        **NAMED,
        **{"share.delivery.count.limit": "2"},
    )
    asker.clock.now_ms += 5
    assert await member.acknowledge((0, 2, [REJECT, RELEASE, ACCEPT])) == 0
    assert await member.got() == {1: 2}
    assert await member.acknowledge((1, 1, [RELEASE])) == 0
    await until(lambda: is_done(asker))
    found = letters(asker, partition=1)
    assert [(each.key, each.value, each.timestamp) for each in found] == [(None, None, NOW_MS + 5)] * 2
    common = {"topic": "jobs", "partition": "3", "group": "pool"}
    assert [headers(each) for each in found] == [
        {**common, "offset": "0", "delivery.count": "1", "message": "Offset rejected by client."},
        {
            **common,
            "offset": "1",
            "delivery.count": "2",
            "message": "Offset delivery count exceeded the threshold.",
        },
    ]
    assert await member.got() == {}
    counts = asker.services.metrics.share
    assert (counts.dead_letters, counts.dead_letter_requests, counts.dead_letter_failures) == (2, 2, 0)


async def test_a_record_that_is_rejected_at_its_last_delivery_says_so(asker: Asker) -> None:
    await asker.create(TOPIC, **ENABLED)
    member = await joined(asker, make_batch(b"0"), **NAMED, **{"share.delivery.count.limit": "2"})
    assert await member.acknowledge((0, 0, [RELEASE])) == 0
    assert await member.got() == {0: 2}
    assert await member.acknowledge((0, 0, [REJECT])) == 0
    await until(lambda: is_done(asker))
    (letter,) = letters(asker)
    assert headers(letter)["message"] == "Offset rejected by client."


async def test_a_lock_that_ends_for_the_last_time_becomes_a_dead_letter(open_asker: Open) -> None:
    asker = await open_asker(
        group_share_min_record_lock_duration_ms=1, group_share_record_lock_duration_ms=50
    )
    await asker.create(TOPIC, **ENABLED)
    member = await joined(asker, make_batch(b"0"), **NAMED, **{"share.delivery.count.limit": "2"})
    asker.clock.now_ms += 500
    assert await member.got(max_wait_ms=5_000) == {0: 2}
    asker.clock.now_ms += 500
    await until(lambda: len(letters(asker)) == 1)
    assert headers(letters(asker)[0])["delivery.count"] == "2"


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_a_copy_has_key_value_and_headers_of_its_record(asker: Asker, compression: Compression) -> None:
    await asker.create(TOPIC, **ENABLED)
    builder = RecordBatchBuilder()
    for number in range(3):
        builder.append(NOW_MS, b"key %d" % number, b"value %d" % number, [("trace", b"%d" % number)])
    batch = bytes(builder.build(compression))
    member = await joined(asker, make_batch(b"before"), batch, **COPIED)
    assert await member.acknowledge((0, 3, [ACCEPT, REJECT, ACCEPT, REJECT])) == 0
    await until(lambda: is_done(asker))
    found = letters(asker)
    assert [(each.key, each.value) for each in found] == [(b"key 0", b"value 0"), (b"key 2", b"value 2")]
    assert [each.headers[0] for each in found] == [("trace", b"0"), ("trace", b"2")]
    assert [headers(each)["offset"] for each in found] == ["1", "3"]


async def test_dead_letters_are_as_many_batches_as_their_topic_needs_and_what_fits_none_is_not_copied(
    asker: Asker,
) -> None:
    await asker.create(TOPIC, max_message_bytes="1000", **ENABLED)
    values = [b"%d" % number * 300 for number in range(5)] + [b"x" * 990]
    member = await joined(asker, make_batch(*values), **COPIED)
    assert await member.acknowledge((0, 5, [REJECT])) == 0
    await until(lambda: is_done(asker))
    found = letters(asker)
    assert [each.value for each in found] == [*values[:5], None]
    assert [headers(each)["offset"] for each in found] == [str(offset) for offset in range(6)]


async def test_records_that_are_deleted_before_have_dead_letters_without_copies(asker: Asker) -> None:
    await asker.create(TOPIC, **ENABLED)
    member = await joined(asker, make_batch(b"0"), make_batch(b"1"), **COPIED)
    asker.replica("jobs").delete_records_before(2)
    with capture_logs() as events:
        assert await member.acknowledge((1, 1, [REJECT])) == 0
        await until(lambda: len(letters(asker)) == 1)
    assert letters(asker)[0].value is None
    assert [each["event"] for each in events] == ["dead_letters_without_originals"]


async def test_a_batch_fits_into_a_segment_of_its_topic(asker: Asker) -> None:
    await asker.create(TOPIC, segment_bytes="1000", **ENABLED)
    values = [b"%d" % number * 300 for number in range(5)]
    member = await joined(asker, make_batch(*values), **COPIED)
    assert await member.acknowledge((0, 4, [REJECT])) == 0
    await until(lambda: is_done(asker))
    assert [each.value for each in letters(asker)] == values


@pytest.mark.parametrize(
    ("settings", "configs", "topic_configs", "reason"),
    [
        ({}, NAMED, None, "topic dlq.jobs does not exist"),
        ({}, NAMED, {}, "topic dlq.jobs takes no dead letters"),
        (
            {"errors_deadletterqueue_topic_name_prefix": "dead."},
            NAMED,
            ENABLED,
            "the name of topic dlq.jobs has to begin with 'dead.'",
        ),
        ({}, NAMED, {"max_message_bytes": "90", **ENABLED}, "MESSAGE_TOO_LARGE"),
        ({}, NAMED, {"cleanup_policy": "compact", **ENABLED}, "INVALID_RECORD"),
        ({"disk": FullDisk()}, NAMED, ENABLED, "KAFKA_STORAGE_ERROR"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_a_group_goes_on_where_its_dead_letters_cannot_be_written(
    open_asker: Open,
    settings: dict[str, Any],
    configs: dict[str, str],
    topic_configs: dict[str, str] | None,
    reason: str,
) -> None:
    asker = await open_asker(**settings)
    if topic_configs is not None:
        await asker.create(TOPIC, **topic_configs)
    member = await joined(asker, make_batch(b"0", b"1"), **configs)
    with capture_logs() as events:
        assert await member.acknowledge((0, 1, [REJECT, ACCEPT])) == 0
        await until(lambda: is_done(asker))
    (event,) = (each for each in events if each["event"] == "dead_letters_not_written")
    assert reason in event["error"]
    assert (event["offsets"], event["records"]) == ([(0, 0)], 1)
    assert letters(asker) == []
    assert asker.services.metrics.share.dead_letter_failures


async def test_the_topic_is_created_where_that_is_allowed(open_asker: Open) -> None:
    asker = await open_asker(errors_deadletterqueue_auto_create_topics_enable=True, num_partitions=3)
    member = await joined(asker, make_batch(b"0"), **NAMED)
    assert await member.acknowledge((0, 0, [REJECT])) == 0
    await until(lambda: len(letters(asker)) == 1)
    topic = asker.topic(TOPIC)
    assert len(topic.partitions) == 3
    assert topic.configs == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


async def test_a_name_of_an_internal_topic_is_refused(asker: Asker) -> None:
    await asker.create("jobs")
    with pytest.raises(AssertionError, match="may not begin with __"):
        await Member(asker).configure(**{"errors.deadletterqueue.topic.name": "__consumer_offsets"})


async def test_a_crash_before_the_dead_letter_is_written_loses_none(
    open_asker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_BACKOFF_SECONDS", (DEADLINE_SECONDS,))
    asker = await open_asker(disk=FullDisk())
    await asker.create(TOPIC, **ENABLED)
    member = await joined(asker, make_batch(b"0", b"1", b"2"), **COPIED)
    assert await member.acknowledge((0, 2, [ACCEPT, REJECT, REJECT])) == 0
    await until(lambda: asker.services.metrics.share.dead_letter_failures)
    await asker.services.close(clean=False)

    again = await open_asker()
    assert letters(again) == []
    assert await Member(again, epoch=0).got() == {}
    await until(lambda: is_done(again))
    assert [(headers(each)["offset"], each.value) for each in letters(again)] == [("1", b"1"), ("2", b"2")]
    assert headers(letters(again)[0])["message"] == "Offset rejected by client."
    await again.services.close(clean=False)

    last = await open_asker()
    assert await Member(last, epoch=0).got() == {}
    assert len(letters(last)) == 2
