"""Produce and Fetch by hand: bytes written out, records never copied, refusals that say why."""

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.protocol import hot
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, ApiKey
from tidelog.protocol.steps import finish
from tidelog.protocol.types import Buffer

RECORDS = bytes(range(200))

PRODUCE_VERSIONS, FETCH_VERSIONS = (
    range(APIS[key].min_version, APIS[key].max_version + 1) for key in (ApiKey.PRODUCE, ApiKey.FETCH)
)


def join(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


def encode_fetch_response(*values: Any) -> list[Buffer]:
    return finish(hot.encode_fetch_response_steps(*values))


def produce_request(*partitions: tuple[int, Buffer | None]) -> hot.ProduceRequest:
    return hot.ProduceRequest(None, -1, 30_000, [("topic", list(partitions))])


def test_a_produce_request_in_either_form() -> None:
    request = hot.ProduceRequest("tx", 1, 2, [("t", [(3, b"abc"), (4, None)])])
    assert join(hot.encode_produce_request(8, request)) == (
        b"\x00\x02tx\x00\x01\x00\x00\x00\x02\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02"
        b"\x00\x00\x00\x03\x00\x00\x00\x03abc\x00\x00\x00\x04\xff\xff\xff\xff"
    )
    assert join(hot.encode_produce_request(9, request)) == (
        b"\x03tx\x00\x01\x00\x00\x00\x02\x02\x02t\x03\x00\x00\x00\x03\x04abc\x00\x00\x00\x00\x04\x00\x00\x00\x00"
    )


def test_a_produce_response_in_either_form() -> None:
    topics = [("t", [hot.ProducePartitionResult(1, 45, 2, 3, 4)])]
    result = b"\x00\x00\x00\x01\x00\x2d" + bytes(7) + b"\x02" + bytes(7) + b"\x03"
    assert hot.encode_produce_response(3, topics, 9) == (
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01" + result + b"\x00\x00\x00\x09"
    )
    assert hot.encode_produce_response(8, topics, 9) == (
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
        + result
        + bytes(7)
        + b"\x04\x00\x00\x00\x00\xff\xff\x00\x00\x00\x09"
    )
    assert hot.encode_produce_response(11, topics, 9) == (
        b"\x02\x02t\x02" + result + bytes(7) + b"\x04\x01\x00\x00\x00\x00\x00\x00\x09\x00"
    )


def is_slice_of(view: Any, whole: bytes) -> bool:
    return isinstance(view, memoryview) and view.obj is whole


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_records_of_a_produce_request_are_never_copied(version: int, partitions: int) -> None:
    request = produce_request(*((index, RECORDS) for index in range(partitions)))
    buffers = hot.encode_produce_request(version, request)
    assert sum(buffer is RECORDS for buffer in buffers) == partitions
    body = join(buffers)
    decoded = hot.decode_produce_request(version, memoryview(body))
    assert decoded == request
    assert all(is_slice_of(records, body) for _, records in decoded.topics[0][1])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_of_a_fetch_response_are_never_copied(version: int) -> None:
    parts = [memoryview(RECORDS)[:50], memoryview(RECORDS)[50:]]
    topics = [("topic", [hot.FetchPartitionResult(index, 0, 5, 5, 0, None, -1, parts) for index in range(2)])]
    buffers = encode_fetch_response(version, 0, 0, topics)
    assert [buffer for buffer in buffers if isinstance(buffer, memoryview)] == parts * 2
    body = join(buffers)
    response = hot.decode_fetch_response(version, body)
    for result in response.topics[0][1]:
        assert result.records == RECORDS
        assert is_slice_of(result.records, body)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_of_a_fetch_response_in_one_buffer_in_several_or_none(version: int) -> None:
    for records, expected in [
        (b"abc", b"abc"),
        ([b"a", b"", b"bc"], b"abc"),
        ([], b""),
        (b"", b""),
        (None, None),
    ]:
        topics = [("t", [hot.FetchPartitionResult(0, 0, records=records)])]
        body = join(encode_fetch_response(version, 0, 0, topics))
        assert hot.decode_fetch_response(version, body).topics[0][1][0].records == expected


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151])
def test_records_on_either_side_of_a_varint_s_growth(version: int, size: int) -> None:
    request = produce_request((0, bytes(size)))
    assert (
        hot.decode_produce_request(version, memoryview(join(hot.encode_produce_request(version, request))))
        == request
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("name", ["", "t" * 126, "t" * 127, "t" * 249, "t" * 250, "grüße-☃"])
def test_topic_names_of_every_length(version: int, name: str) -> None:
    request = hot.ProduceRequest(None, -1, 1, [(name, [(0, RECORDS)])])
    assert (
        hot.decode_produce_request(version, memoryview(join(hot.encode_produce_request(version, request))))
        == request
    )
    topics = [(name, [hot.ProducePartitionResult(0, 0, 1)])]
    for _ in range(2):
        encoded = hot.encode_produce_response(version, topics)
        assert hot.decode_produce_response(version, encoded).topics == topics


def test_where_to_turn_is_told_from_version_10() -> None:
    topics = [("t", [hot.ProducePartitionResult(0, 6, current_leader=(2, 7))])]
    for version in PRODUCE_VERSIONS[10 - PRODUCE_VERSIONS[0] :]:
        encoded = hot.encode_produce_response(version, topics)
        assert hot.decode_produce_response(version, encoded).topics == topics
    with pytest.raises(ProtocolError, match="current_leader"):
        hot.encode_produce_response(9, topics)


def test_a_fetch_tells_the_leader_and_the_epoch_where_logs_part() -> None:
    result = hot.FetchPartitionResult(0, 6, current_leader=(2, 7), diverging_epoch=(3, 99))
    body = join(encode_fetch_response(12, 0, 0, [("t", [result])]))
    assert hot.decode_fetch_response(12, body).topics == [("t", [result])]
    with pytest.raises(ProtocolError, match="version 12"):
        encode_fetch_response(11, 0, 0, [("t", [result])])


FETCH = hot.FetchRequest(-1, 500, 1, 1 << 20, 0, 7, 8, [("t", [hot.FetchPartition(0, 1, 2, -1, 4, 5)])])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_drops_what_its_version_lacks(version: int) -> None:
    decoded = hot.decode_fetch_request(version, hot.encode_fetch_request(version, FETCH))
    partition = decoded.topics[0][1][0]
    assert (decoded.session_id, decoded.session_epoch) == ((7, 8) if version >= 7 else (0, -1))
    assert partition.current_leader_epoch == (1 if version >= 9 else -1)
    assert partition.log_start_offset == (4 if version >= 5 else -1)
    assert (partition.fetch_offset, partition.partition_max_bytes) == (2, 5)


def test_what_must_not_be_dropped_is_refused() -> None:
    with pytest.raises(ProtocolError, match="forgotten_topics"):
        hot.encode_fetch_request(6, FETCH._replace(forgotten_topics=[("t", [1])]))
    topics = [("t", [hot.FetchPartition(0, -1, 2, 3, -1, 5)])]
    with pytest.raises(ProtocolError, match="last_fetched_epoch"):
        hot.encode_fetch_request(11, FETCH._replace(topics=topics))
    with pytest.raises(ProtocolError, match="session_id"):
        encode_fetch_response(6, 0, 1, [])
    with pytest.raises(ProtocolError, match="preferred_read_replica"):
        encode_fetch_response(10, 0, 0, [("t", [hot.FetchPartitionResult(0, 0, preferred_read_replica=1)])])


def test_unknown_tagged_fields_are_skipped() -> None:
    body = join(hot.encode_produce_request(9, produce_request((0, RECORDS))))
    tagged = body[:-1] + b"\x02\x05\x03abc\x63\x00"
    assert hot.decode_produce_request(9, memoryview(tagged)) == produce_request((0, RECORDS))
    fetch = hot.encode_fetch_request(12, FETCH)
    cluster_id = fetch[:-1] + b"\x01\x00\x03\x02id"
    assert hot.decode_fetch_request(12, cluster_id) == hot.decode_fetch_request(12, fetch)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: hot.decode_produce_request(2, memoryview(b"")), f"expected 3 to {PRODUCE_VERSIONS[-1]}"),
        (lambda: hot.encode_produce_request(99, produce_request()), f"expected 3 to {PRODUCE_VERSIONS[-1]}"),
        (lambda: hot.encode_produce_response(-1, []), f"expected 3 to {PRODUCE_VERSIONS[-1]}"),
        (lambda: hot.decode_produce_response(99, b""), f"expected 3 to {PRODUCE_VERSIONS[-1]}"),
        (lambda: hot.decode_fetch_request(3, b""), f"expected 4 to {FETCH_VERSIONS[-1]}"),
        (lambda: hot.encode_fetch_request(99, FETCH), f"expected 4 to {FETCH_VERSIONS[-1]}"),
        (lambda: encode_fetch_response(99, 0, 0, []), f"expected 4 to {FETCH_VERSIONS[-1]}"),
        (lambda: hot.decode_fetch_response(3, b""), f"expected 4 to {FETCH_VERSIONS[-1]}"),
    ],
)
def test_a_version_that_does_not_exist_is_refused(call: Callable[[], object], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        call()


@pytest.mark.parametrize("version", [3, 8, 9, PRODUCE_VERSIONS[-1]])
def test_every_cut_and_every_extra_byte_of_a_produce_request_is_refused(version: int) -> None:
    for request in (produce_request((0, RECORDS)), produce_request((0, RECORDS), (1, None))):
        body = join(hot.encode_produce_request(version, request))
        for end in range(len(body)):
            with pytest.raises(ProtocolError, match=f"ProduceRequest version {version}"):
                hot.decode_produce_request(version, memoryview(body)[:end])
        with pytest.raises(ProtocolError, match="1 bytes follow"):
            hot.decode_produce_request(version, memoryview(body + b"\x00"))


def test_counts_beyond_the_bytes_are_refused_before_memory_is_taken() -> None:
    head = b"\xff\xff\x00\x01\x00\x00\x00\x01"
    with pytest.raises(ProtocolError, match="array of 2147483647"):
        hot.decode_produce_request(8, memoryview(head + b"\x7f\xff\xff\xff" + bytes(50)))
    with pytest.raises(ProtocolError, match="array of -1"):
        hot.decode_produce_request(8, memoryview(head + b"\xff\xff\xff\xff"))


def test_a_request_has_a_budget_of_elements() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    empty_topics = count.to_bytes(4, "big") + bytes(6 * count)
    body = memoryview(b"\xff\xff\x00\x01\x00\x00\x00\x01" + empty_topics)
    with pytest.raises(ProtocolError, match="expected 0 to 100000 elements"):
        hot.decode_produce_request(8, body)


@pytest.mark.parametrize(
    "request_",
    [
        hot.ProduceRequest("x" * 40_000, 1, 1, []),
        hot.ProduceRequest(None, 1 << 20, 1, []),
        hot.ProduceRequest(None, 1, 1, [("\ud800", [])]),
    ],
    ids=["name too long", "number too large", "text that is none"],
)
def test_values_that_the_wire_cannot_carry_are_refused(request_: hot.ProduceRequest) -> None:
    with pytest.raises(ProtocolError, match="ProduceRequest version 8"):
        hot.encode_produce_request(8, request_)


def test_a_fetch_that_repeats_a_partition_asks_for_it_once_as_named_last() -> None:
    repeated = [hot.FetchPartition(0, -1, offset, -1, -1, 1) for offset in range(1000)]
    other = hot.FetchPartition(1, -1, 7, -1, -1, 1)
    for topics in (
        [("t", [*repeated, other])],
        [("t", [repeated[0], other]), *(("t", [one]) for one in repeated)],
    ):
        request = hot.FetchRequest(-1, 0, 1, 1, 0, 0, -1, topics)
        decoded = hot.decode_fetch_request(11, hot.encode_fetch_request(11, request))
        assert decoded.topics == [("t", [repeated[-1], other])]
