"""Produce and Fetch by hand: bytes written out, records never copied, refusals that say why."""

from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from tidelog.protocol import hot
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import FIRST_BY_ID
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, ApiKey
from tidelog.protocol.steps import finish
from tidelog.protocol.types import Buffer

RECORDS = bytes(range(200))

PRODUCE_VERSIONS, FETCH_VERSIONS = (
    range(APIS[key].min_version, APIS[key].max_version + 1) for key in (ApiKey.PRODUCE, ApiKey.FETCH)
)


def topic_in(version: int, name: str = "t") -> Any:
    """A topic as this version of Produce or Fetch names it."""
    return name if version < FIRST_BY_ID else uuid5(NAMESPACE_OID, name)


def join(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)


def encode_fetch_response(version: int, *topics: tuple[Any, list[hot.FetchPartitionResult]]) -> list[Buffer]:
    return finish(hot.encode_fetch_response_steps(version, hot.FetchResponse(0, 0, 0, topics)))


def produce_request(*partitions: tuple[int, Buffer | None], version: int = 9) -> hot.ProduceRequest:
    return hot.ProduceRequest(None, -1, 30_000, [(topic_in(version), list(partitions))])


def is_slice_of(view: Any, whole: bytes) -> bool:
    return isinstance(view, memoryview) and view.obj is whole


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_records_of_a_produce_request_are_never_copied(version: int, partitions: int) -> None:
    request = produce_request(*((index, RECORDS) for index in range(partitions)), version=version)
    buffers = hot.encode_produce_request(version, request)
    assert sum(buffer is RECORDS for buffer in buffers) == partitions
    body = join(buffers)
    decoded = hot.decode_produce_request(version, memoryview(body))
    assert decoded == request
    assert all(is_slice_of(records, body) for _, records in decoded.topics[0][1])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_of_a_fetch_response_are_never_copied(version: int) -> None:
    parts = [memoryview(RECORDS)[:50], memoryview(RECORDS)[50:]]
    results = [hot.FetchPartitionResult(index, 0, 5, 5, 0, None, -1, parts) for index in range(2)]
    buffers = encode_fetch_response(version, (topic_in(version), results))
    assert [buffer for buffer in buffers if isinstance(buffer, memoryview)] == parts * 2
    body = join(buffers)
    response = hot.decode_fetch_response(version, body)
    for result in response.topics[0][1]:
        assert result.records == RECORDS
        assert is_slice_of(result.records, body)


FETCH = hot.FetchRequest(-1, 500, 1, 1 << 20, 0, 7, 8, [("t", [hot.FetchPartition(0, 1, 2, -1, 4, 5)])])


def test_bytes_behind_a_request_are_ignored() -> None:
    for version in PRODUCE_VERSIONS:
        wanted = hot.ProduceRequest(None, -1, 1000, [(topic_in(version), [(0, RECORDS)])])
        produce = join(hot.encode_produce_request(version, wanted))
        decoded = hot.decode_produce_request(version, memoryview(produce))
        assert hot.decode_produce_request(version, memoryview(produce + bytes(3))) == decoded
    for version in FETCH_VERSIONS:
        fetch = hot.encode_fetch_request(version, FETCH._replace(topics=[(topic_in(version), [])]))
        assert hot.decode_fetch_request(version, fetch + bytes(3)) == hot.decode_fetch_request(version, fetch)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = join(hot.encode_produce_request(9, produce_request((0, RECORDS))))
    tagged = body[:-1] + b"\x02\x05\x03abc\x63\x00"
    assert hot.decode_produce_request(9, memoryview(tagged)) == produce_request((0, RECORDS))
    fetch = hot.encode_fetch_request(12, FETCH)
    cluster_id = fetch[:-1] + b"\x01\x00\x03\x03id"
    assert hot.decode_fetch_request(12, cluster_id) == hot.decode_fetch_request(12, fetch)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hot.decode_produce_request(99, memoryview(b"")),
        lambda: hot.encode_produce_request(99, produce_request()),
        lambda: hot.encode_produce_response(99, []),
        lambda: hot.decode_produce_response(99, b""),
        lambda: hot.decode_fetch_request(99, b""),
        lambda: hot.encode_fetch_request(99, FETCH),
        lambda: encode_fetch_response(99),
        lambda: hot.decode_fetch_response(99, b""),
    ],
)
def test_a_version_that_does_not_exist_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ProtocolError, match=r"(Produce|Fetch) version .*expected|expected (Produce|Fetch) "):
        call()


def test_a_request_has_a_budget_of_elements() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    empty_topics = count.to_bytes(4, "big") + bytes(6 * count)
    body = memoryview(b"\xff\xff\x00\x01\x00\x00\x00\x01" + empty_topics)
    with pytest.raises(ProtocolError, match="expected at most 100000 more elements"):
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
