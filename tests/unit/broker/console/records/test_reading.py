"""Pages, searches, followers and downloads of records: what Fetch gives, bounded."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.console.asking import console_of
from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.transactional import TransactionalClient
from tests.waiting import until
from tidelog.broker.console.api.records import ReadSome, search_route
from tidelog.broker.console.records import reading as view
from tidelog.broker.console.records.filters import Filter
from tidelog.broker.console.records.reading import Place, Reading, Records
from tidelog.broker.console.records.stepwise_reading import MOST_DECOMPRESSED_BYTES
from tidelog.broker.console.route import Console
from tidelog.broker.storage.log_types import READ_COMMITTED
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import RecordBatchBuilder

Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
Open = Callable[..., Awaitable[Asker]]
START = Place(0)
COMMITTED = Reading(READ_COMMITTED)


def batch(*rows: Row, compression: Compression = Compression.NONE, timestamp_ms: int = NOW_MS) -> bytes:
    builder = RecordBatchBuilder()
    for number, (key, value, headers) in enumerate(rows):
        builder.append(timestamp_ms + number, key, value, headers)
    return bytes(builder.build(compression))


def seeking(key: str | None = None, header: str = "", text: str = "", expression: str = "") -> Reading:
    return Reading(wanted=Filter.of(key, header, text, expression))


def offsets(answer: Any) -> list[int]:
    return [row["offset"] for row in answer["rows"]]


async def stored(asker: Asker, *batches: bytes) -> None:
    for each in batches:
        assert (await asker.produce("t", each)).error_code == 0


@pytest.fixture
async def filled(asker: Asker) -> Records:
    """Three batches of four records in each codec: offsets 0 to 59."""
    await asker.create("t")
    for codec in Compression:
        for first in range(0, 12, 4):
            rows: list[Row] = [
                (b"key %d" % number, b"%s value %d" % (codec.name.encode(), number), ((f"h{number}", b"x"),))
                for number in range(first, first + 4)
            ]
            await stored(asker, batch(*rows, compression=codec, timestamp_ms=NOW_MS + 100 * codec + first))
    return Records(asker.services)


@pytest.mark.parametrize(
    ("place", "limit", "expected", "next_offset"),
    [
        (Place(), 3, [59, 58, 57], 57),
        (Place(), 500, list(range(59, -1, -1)), 0),
        (Place(0), 3, [0, 1, 2], 3),
        (Place(2), 4, [2, 3, 4, 5], 6),
        (Place(58), 50, [58, 59], 60),
        (Place(60), 50, [], 60),
        (Place(1 << 60), 50, [], 60),
        (Place(timestamp_ms=0), 1, [0], 1),
        (Place(timestamp_ms=NOW_MS + 105), 2, [17, 18], 19),
        (Place(timestamp_ms=NOW_MS + 10_000), 2, [], 60),
    ],
)
async def test_a_page_begins_where_it_is_asked_to(
    filled: Records, place: Place, limit: int, expected: list[int], next_offset: int
) -> None:
    answer = await filled.page("t", {0: None}, place, limit, Reading())
    assert offsets(answer) == expected
    assert answer["positions"] == [
        {"partition": 0, "offset": next_offset, "start_offset": 0, "end_offset": 60}
    ]


async def test_a_record_is_shown_as_it_was_sent(filled: Records) -> None:
    (row,) = (await filled.page("t", {0: None}, Place(17), 1, Reading()))["rows"]
    assert (row["timestamp"], row["timestamp_type"]) == (NOW_MS + 105, "CREATE_TIME")
    assert row["key"] is not None
    assert row["key"]["text"] == "key 5"
    assert row["value"] is not None
    assert row["value"]["text"] == "GZIP value 5"
    (header,) = row["headers"]
    assert header["name"] == "h5"
    assert await filled.record("t", 0, 17, Reading()) == row


@pytest.mark.parametrize("offset", [60, 1 << 60])
async def test_a_record_that_is_not_there_is_an_error(filled: Records, offset: int) -> None:
    with pytest.raises(ApiError) as caught:
        await filled.record("t", 0, offset, Reading())
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_partition_that_is_not_served_is_an_error(filled: Records) -> None:
    for ask in (filled.record("t", 1, 0, Reading()), filled.record("u", 0, 0, Reading())):
        with pytest.raises(ApiError) as caught:
            await ask
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def found_by(records: Records, reading: Reading, most: int = 100, place: Place = START) -> list[Any]:
    return [message async for message in records.search("t", 0, place, most, reading)]


def search(console: Console, visitor: str, *partitions: int, **conditions: Any) -> Any:
    """The messages of a visitor's search."""
    asked = ReadSome(topic="t", partitions=partitions, **conditions)
    return search_route.handle(console, SimpleNamespace(user=visitor, host="here"), asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (seeking(key="key 5"), [5, 17, 29, 41, 53]),
        (seeking(header="h11"), [11, 23, 35, 47, 59]),
        (seeking(header="h1=x", text="LZ4"), [37]),
        (seeking(text="ZSTD value 1"), [49, 58, 59]),
        (seeking(text="nowhere"), []),
        (seeking(key="key"), []),
    ],
)
async def test_a_search_finds_what_matches_in_each_codec_and_nothing_else(
    filled: Records, reading: Reading, expected: list[int]
) -> None:
    messages = await found_by(filled, reading)
    assert [row["offset"] for message in messages for row in message["rows"]] == expected
    assert (messages[-1]["offset"], messages[-1]["end_offset"]) == (60, 60)
    assert sum(message["size_bytes"] for message in messages) > 0
    page = await filled.page("t", {0: None}, START, 500, reading)
    assert offsets(page) == expected


async def test_a_search_goes_through_one_partition_after_the_other(asker: Asker) -> None:
    await asker.create("t", 4)
    for partition, key in ((0, b"a"), (1, b"b"), (3, b"a")):
        await asker.produce("t", batch((key, None, ())), partition=partition)
    messages = [message async for message in search(console_of(asker), "visitor", key="a")]
    assert [(each["partition"], offsets(each)) for each in messages if each["rows"]] == [(0, [0]), (3, [0])]
    assert (messages[-1]["state"], messages[-1]["found"], messages[-1]["partitions"]) == ("done", 2, 4)
    asker.replica("t", 0).fail(OSError("the disk is gone"))
    messages = [message async for message in search(console_of(asker), "visitor", key="a")]
    assert [(each["partition"], offsets(each)) for each in messages if each["rows"]] == [(3, [0])]
    assert (messages[-1]["state"], messages[-1]["not_served"]) == ("done", 1)


async def test_a_search_ends_with_as_many_records_as_were_wanted(filled: Records, asker: Asker) -> None:
    messages = [message async for message in search(console_of(asker), "visitor", key="key 5", limit=2)]
    assert [offsets(message) for message in messages if message["rows"]] == [[5, 17]]
    assert (messages[-1]["state"], messages[-1]["offset"]) == ("full", 18)
    again = await found_by(filled, seeking(key="key 5"), place=Place(messages[-1]["offset"]))
    assert [row["offset"] for message in again for row in message["rows"]] == [29, 41, 53]


async def test_the_next_search_of_a_visitor_ends_the_one_before(
    filled: Records, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "STEP_RECORDS", 1)
    console = console_of(asker)
    async with aclosing(search(console, "visitor", text="value")) as first:
        assert (await anext(first))["state"] == "searching"
        async with aclosing(search(console, "other", text="value")) as other:
            assert (await anext(other))["state"] == "searching"
            messages = [message async for message in search(console, "visitor", text="nowhere")]
            assert messages[-1]["state"] == "done"
            assert [message["state"] async for message in first] == ["replaced"]
            assert (await anext(other))["state"] == "searching"


async def test_there_are_so_many_searches_and_each_that_ends_makes_room(
    filled: Records, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MOST_SEARCHES", 1)
    monkeypatch.setattr(view, "STEP_RECORDS", 1)
    console = console_of(asker)
    async with aclosing(search(console, "one", text="value")) as running:
        await anext(running)
        with pytest.raises(ApiError) as caught:
            await anext(search(console, "visitor", text="value"))
        assert caught.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (await anext(search(console, "visitor", text="nowhere")))["state"] == "searching"


async def test_a_visitor_who_goes_while_a_thread_reads_holds_nobody_up(filled: Records) -> None:
    search = asyncio.ensure_future(anext(filled.search("t", 0, START, 100, seeking(text="nowhere"))))
    await asyncio.sleep(0)
    search.cancel()
    await asyncio.wait([search])
    assert offsets(await filled.page("t", {0: None}, START, 1, Reading())) == [0]


async def test_who_reads_committed_records_sees_neither_open_nor_aborted_ones(asker: Asker) -> None:
    await asker.create("t")
    records = Records(asker.services)
    client = TransactionalClient(asker)
    await client.begin()
    for sequence, commits in ((0, False), (1, True)):
        await client.add(("t", 0))
        await client.produce("t", sequence, b"committed" if commits else b"aborted")
        assert await client.end(commits) == 0
        end = 2 * sequence + 2
        await until(lambda end=end: asker.replica("t").ends.last_stable == end)
    await client.add(("t", 0))
    await client.produce("t", 2, b"open")
    every = await records.page("t", {0: None}, START, 10, Reading())
    assert [(row["offset"], row["value"] and row["value"]["text"]) for row in every["rows"]] == [
        (0, "aborted"),
        (2, "committed"),
        (4, "open"),
    ]
    assert offsets(await records.page("t", {0: None}, START, 10, COMMITTED)) == [2]
    assert offsets(await records.page("t", {0: None}, Place(), 10, COMMITTED)) == [2]
    batches = (await records.batches("t", 0, None, 10))["rows"]
    assert [(each["control"], each["is_transactional"], each["is_aborted"]) for each in batches] == [
        ("", True, True),
        ("abort", True, False),
        ("", True, False),
        ("commit", True, False),
        ("", True, False),
    ]
    assert {each["producer_id"] for each in batches} == {client.pair.producer_id}
    assert [each["base_sequence"] for each in batches if not each["control"]] == [0, 1, 2]


async def test_a_page_of_batches_has_their_headers(filled: Records) -> None:
    answer = await filled.batches("t", 0, 14, 2)
    assert [(row["base_offset"], row["last_offset"]) for row in answer["rows"]] == [(12, 15), (16, 19)]
    (row, _) = answer["rows"]
    assert (row["compression"], row["records"], row["producer_id"]) == ("gzip", 4, -1)
    assert (row["base_sequence"], row["last_sequence"], row["control"]) == (-1, -1, "")
    assert row["max_timestamp"] == NOW_MS + 103
    assert answer["next_offset"] == 20
    following = await filled.batches("t", 0, 20, 500)
    assert [row["base_offset"] for row in following["rows"]] == list(range(20, 60, 4))
    assert following["next_offset"] == 60
    assert (await filled.batches("t", 0, 1 << 60, 5))["rows"] == []


async def test_a_batch_that_yields_too_much_is_named_and_passed(asker: Asker) -> None:
    await asker.create("t")
    records = Records(asker.services)
    bomb = batch((None, bytes(MOST_DECOMPRESSED_BYTES), ()), compression=Compression.ZSTD)
    await stored(asker, batch((b"a", None, ())), bomb, batch((b"b", None, ())))
    rows = (await records.page("t", {0: None}, START, 10, Reading()))["rows"]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert "yields more than" in rows[1]["problem"]
    with pytest.raises(ApiError) as caught:
        [line async for line in records.lines("t", 0, START, Reading())]
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


async def test_an_answer_is_bounded_in_bytes(asker: Asker) -> None:
    await asker.create("t")
    records = Records(asker.services)
    large = b"x" * 900_000
    row: Row = (b"k" * 100_000, large, (("h" * 1_000, large),))
    await stored(asker, *(batch(row, compression=Compression.ZSTD) for _ in range(12)))
    answer = await records.page("t", {0: None}, START, 500, Reading())
    assert 2 <= len(answer["rows"]) <= 3
    assert answer["positions"][0]["offset"] == len(answer["rows"])
    assert len(json.dumps(answer)) < 100_000
    (one,) = (await records.page("t", {0: None}, Place(), 1, Reading()))["rows"]
    assert one["offset"] == 11
    assert one["value"] is not None
    assert (one["value"]["size_bytes"], one["value"]["is_truncated"]) == (900_000, True)
    assert len(one["headers"][0]["name"]) < 1_000
    last = await records.page("t", {0: None}, Place(), 500, Reading())
    assert offsets(last)[0] == 11
    whole = await records.record("t", 0, 3, Reading())
    assert whole["value"] is not None
    assert len(whole["value"]["text"]) > 10_000


async def test_the_last_records_are_found_behind_offsets_without_records(
    asker: Asker, open_asker: Open
) -> None:
    await asker.create("t")
    records = Records(asker.services)
    await stored(asker, *(batch((b"%d" % number, None, ())) for number in range(3)))
    client = TransactionalClient(asker)
    await client.begin()
    for _ in range(10):
        await client.add(("t", 0))
        assert await client.end(False) == 0
    await until(lambda: asker.replica("t").ends.last_stable == 13)
    assert offsets(await records.page("t", {0: None}, Place(), 2, Reading())) == [2, 1]


async def test_records_may_be_deleted_while_they_are_searched(
    filled: Records, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "STEP_RECORDS", 1)
    found = []
    async for message in filled.search("t", 0, START, 100, seeking(key="key 5")):
        found += offsets(message)
        if found == [5]:
            asker.replica("t").delete_records_before(40)
    assert found == [5, 41, 53]


async def test_lines_are_those_of_the_command(filled: Records) -> None:
    lines = b"".join([part async for part in filled.lines("t", 0, Place(57), seeking(text="1"))])
    assert [json.loads(line) for line in lines.splitlines()] == [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": NOW_MS + 400 + number,
            "key": f"key {number}",
            "value": f"ZSTD value {number}",
            "headers": [[f"h{number}", "x"]],
        }
        for offset, number in ((58, 10), (59, 11))
    ]


async def test_a_follower_gets_what_comes_and_how_much_was_left_out(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MOST_FOLLOWED", 3)
    monkeypatch.setattr(view, "FOLLOW_SECONDS", 0)
    await asker.create("t")
    records = Records(asker.services)
    await stored(asker, batch((b"before", None, ())))
    async with aclosing(records.follow("t", [0], Reading())) as following:
        assert await anext(following) == {"rows": [], "left_out": 0}
        news = asyncio.ensure_future(anext(following))
        await stored(asker, batch((b"after", None, ())))
        message = await news
        assert (offsets(message), message["left_out"]) == ([1], 0)
        await stored(asker, batch(*((b"%d" % number, None, ()) for number in range(5))))
        message = await anext(following)
        assert (offsets(message), message["left_out"]) == ([4, 5, 6], 2)
        ended = asyncio.ensure_future(anext(following))
        await asker.services.topics.delete(asker.topic("t").topic_id)
        with pytest.raises(ApiError) as caught:
            await ended
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_follower_with_a_filter_misses_nothing_that_matches(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MOST_FOLLOWED", 2)
    monkeypatch.setattr(view, "FOLLOW_SECONDS", 0)
    await asker.create("t")
    async with aclosing(Records(asker.services).follow("t", [0], seeking(key="a"))) as following:
        await anext(following)
        keys = b"abcacbca"
        await stored(asker, batch(*((keys[at : at + 1], None, ()) for at in range(len(keys)))))
        first, second = await anext(following), await anext(following)
    assert (offsets(first), first["left_out"]) == ([0, 3], 0)
    assert (offsets(second), second["left_out"]) == ([7], 0)


async def spread_over(asker: Asker, *times: tuple[int, int]) -> Records:
    """Three partitions with a record for each (partition, time)."""
    await asker.create("t", 3)
    for partition, at in times:
        value = b'{"at": %d}' % at
        assert (
            await asker.produce("t", batch((None, value, ()), timestamp_ms=at), partition=partition)
        ).error_code == 0
    return Records(asker.services)


def places(answer: Any) -> list[tuple[int, int]]:
    return [(row["partition"], row["timestamp"]) for row in answer["rows"]]


async def test_the_newest_records_of_all_partitions_are_merged_by_time_and_read_on(asker: Asker) -> None:
    # Nearly all records are in one partition: the look at the others must not leave them out.
    times = [(0, 1), (1, 2), (2, 3), *((1, at) for at in range(10, 40)), (0, 50), (2, 45)]
    records = await spread_over(asker, *times)
    every = sorted(times, key=lambda each: -each[1])
    seen, offsets_of = [], dict.fromkeys(range(3))
    while len(seen) < len(every):
        answer = await records.page("t", offsets_of, Place(), 7, Reading())
        assert answer["is_complete"]
        assert answer["newest_first"]
        seen += places(answer)
        assert seen == every[: len(seen)]
        offsets_of = {each["partition"]: each["offset"] for each in answer["positions"]}
    assert offsets_of == dict.fromkeys(range(3), 0)


async def test_the_records_of_all_partitions_from_a_time_on_are_merged_oldest_first(asker: Asker) -> None:
    records = await spread_over(asker, (0, 1), (0, 30), (1, 20), (2, 10), (2, 40))
    answer = await records.page("t", dict.fromkeys(range(3)), Place(timestamp_ms=10), 3, Reading())
    assert places(answer) == [(2, 10), (1, 20), (0, 30)]
    on = {each["partition"]: each["offset"] for each in answer["positions"]}
    assert on == {0: 2, 1: 1, 2: 1}
    assert places(await records.page("t", on, Place(timestamp_ms=10), 3, Reading())) == [(2, 40)]


async def test_the_times_of_a_partition_do_not_change_the_order_of_its_offsets(asker: Asker) -> None:
    records = await spread_over(asker, (0, 30), (0, 10), (0, 20), (1, 15))
    answer = await records.page("t", dict.fromkeys(range(3)), Place(), 2, Reading())
    assert places(answer) == [(0, 20), (1, 15)]
    on = {each["partition"]: each["offset"] for each in answer["positions"]}
    assert places(await records.page("t", on, Place(), 9, Reading())) == [(0, 10), (0, 30)]


async def test_one_look_at_many_partitions_is_bounded_and_says_so(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = await spread_over(asker, (0, 1), (1, 2), (2, 3))
    monkeypatch.setattr(view, "MOST_SCANNED_BYTES", 1)
    monkeypatch.setattr(view._Budget.__init__, "__defaults__", (1,))
    answer = await records.page("t", dict.fromkeys(range(3)), Place(), 9, Reading())
    assert (places(answer), answer["is_complete"]) == ([(0, 1)], False)
    assert [each["offset"] for each in answer["positions"]] == [0, 1, 1]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("at > `20`", [30, 40]), ("nothing", []), ("at == `10` || at == `40`", [10, 40])],
)
async def test_records_are_chosen_by_an_expression_on_their_values(
    asker: Asker, expression: str, expected: list[int]
) -> None:
    records = await spread_over(asker, (0, 10), (0, 20), (0, 30), (0, 40))
    await stored(asker, batch((None, b"no JSON", ())), batch((None, None, ())))
    wanted = seeking(expression=expression)
    answer = await records.page("t", {0: None}, START, 9, wanted)
    assert [row["timestamp"] for row in answer["rows"]] == expected
    found = [row["timestamp"] for message in await found_by(records, wanted) for row in message["rows"]]
    assert found == expected
    one = await records.page("t", {0: None}, START, 1, wanted)
    assert [row["timestamp"] for row in one["rows"]] == expected[:1]
    rest = {0: one["positions"][0]["offset"]}
    assert [
        row["timestamp"] for row in (await records.page("t", rest, START, 9, wanted))["rows"]
    ] == expected[1:]


async def test_a_follower_of_partitions_gets_what_any_of_them_gets(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "FOLLOW_SECONDS", 0)
    records = await spread_over(asker, (0, 1), (1, 2))
    async with aclosing(records.follow("t", [0, 1, 2], Reading())) as following:
        await anext(following)
        for partition in (2, 0):
            await asker.produce("t", batch((None, b"new", ())), partition=partition)
            assert [row["partition"] for row in (await anext(following))["rows"]] == [partition]
        watched = [asker.replica("t", each) for each in range(3)]
        assert all(each._watchers for each in watched)
    assert not any(each._watchers for each in watched)
