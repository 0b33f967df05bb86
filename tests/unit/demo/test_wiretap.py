"""The wiretap tells batches sent again from new ones by their bytes."""

from demo.wiretap import Wiretap, batches_in
from faults.link import Request
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey


def batch(value: bytes, base_sequence: int = -1) -> memoryview:
    builder = RecordBatchBuilder()
    builder.append(1_000, None, value)
    return memoryview(builder.build(base_sequence=base_sequence))


def produce(*records: memoryview | None) -> Request:
    """A Produce request as the proxy sees it, with one partition for each batch."""
    topics = [("flights", list(enumerate(records)))]
    body = encode_produce_request(9, ProduceRequest(None, -1, 1000, topics))
    frame = b"".join(encode_request_frame(ApiKey.PRODUCE, 9, 7, "demo", body))
    return Request(ApiKey.PRODUCE, frame[4:])


def test_every_batch_of_a_request_is_seen() -> None:
    batches = batches_in(produce(batch(b"a"), None, batch(b"b", 5)))
    assert [(each.topic, each.partition, each.base_sequence) for each in batches] == [
        ("flights", 0, -1),
        ("flights", 2, 5),
    ]


def test_the_same_bytes_for_the_same_partition_are_sent_again() -> None:
    tap = Wiretap()
    for request in (produce(batch(b"a"), batch(b"b")), produce(batch(b"a")), produce(batch(b"a"))):
        tap(request)
    assert (tap.batches, tap.sent_again) == (2, 2)


def test_the_same_bytes_for_another_partition_are_new() -> None:
    tap = Wiretap()
    tap(produce(batch(b"a"), batch(b"a")))
    assert (tap.batches, tap.sent_again) == (2, 0)


def test_other_requests_hold_no_batches() -> None:
    assert batches_in(Request(ApiKey.METADATA, b"anything")) == []
