"""A Produce request that a shape matches has the values, and its answer the bytes, of the codecs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.test_hot import topic_in
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.framing import decode_request_header, encode_request_frame, encode_response_frame
from tidelog.protocol.hot import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceShape,
    decode_produce_request,
    encode_produce_request,
    encode_produce_response,
)
from tidelog.protocol.schema import ApiKey

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
# Each length has its own size as a varint.
records = st.binary(min_size=1, max_size=20) | st.sampled_from([b"r" * n for n in (126, 127, 16382, 16383)])
names = st.sampled_from(["", "t", "topic", "t" * 126, "t" * 127])
versions = st.integers(7, 13)
likes = st.tuples(st.none() | names, st.sampled_from([-1, 1]), int32, names)


def framed(
    version: int, like: tuple[str | None, int, int, str], correlation_id: int, index: int, batch: bytes | None
) -> bytes:
    client_id, acks, timeout_ms, topic = like
    request = ProduceRequest(None, acks, timeout_ms, [(topic_in(version, topic), [(index, batch)])])
    body = encode_produce_request(version, request)
    return b"".join(encode_request_frame(ApiKey.PRODUCE, version, correlation_id, client_id, body))[4:]


def shape_of(version: int, frame: bytes) -> ProduceShape | None:
    view = memoryview(frame)
    _, position = decode_request_header(view)
    return ProduceShape.of(version, view, decode_produce_request(version, view[position:]))


@settings(max_examples=60)
@given(versions, likes, likes, st.booleans(), int32, int32, records, records, st.data())
def test_a_shape_matches_the_requests_that_differ_only_in_their_batch(
    version: int,
    like: tuple[str | None, int, int, str],
    other: tuple[str | None, int, int, str],
    is_like: bool,
    correlation_id: int,
    index: int,
    first: bytes,
    batch: bytes,
    data: st.DataObject,
) -> None:
    shape = shape_of(version, framed(version, like, 1, 0, first))
    assert shape is not None
    frame = framed(version, like if is_like else other, correlation_id, index, batch)
    found = shape.match(memoryview(frame))
    assert found == ((correlation_id, index, batch) if is_like or like == other else None)
    position = data.draw(st.integers(0, len(frame) - 1))
    damaged = bytearray(frame)
    damaged[position] ^= data.draw(st.integers(1, 255))
    for odd in (memoryview(damaged), memoryview(frame)[:position]):
        found = shape.match(odd)
        if found is None:
            continue
        header, body_at = decode_request_header(odd)
        decoded = decode_produce_request(version, odd[body_at:])
        assert header == (ApiKey.PRODUCE, version, found[0], like[0])
        assert decoded == (None, like[1], like[2], [(topic_in(version, like[3]), [found[1:]])])


@settings(max_examples=30)
@given(versions, likes, int32, int32, st.sampled_from([0, 46]), int64, int64, int64)
def test_an_answer_has_the_bytes_of_the_codec(
    version: int,
    like: tuple[str | None, int, int, str],
    correlation_id: int,
    index: int,
    code: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
) -> None:
    shape = shape_of(version, framed(version, like, 1, 0, b"batch"))
    assert shape is not None
    fields = (index, code, base_offset, append_time_ms, log_start_offset)
    body = encode_produce_response(version, [(topic_in(version, like[3]), [ProducePartitionResult(*fields)])])
    answer = b"".join(encode_response_frame(ApiKey.PRODUCE, version, correlation_id, body))
    assert shape.answer(correlation_id, *fields) == answer
    base_offset //= 2
    several = [
        shape.answer(each, index, 0, offset, append_time_ms, log_start_offset)
        for offset, each in enumerate((correlation_id, 7), base_offset)
    ]
    together = shape.answers((correlation_id, 7), index, base_offset, append_time_ms, log_start_offset)
    assert together == b"".join(several)


def test_other_requests_have_no_shape() -> None:
    like = (None, -1, 100, "t")
    assert shape_of(6, framed(6, like, 1, 0, b"batch")) is None
    assert shape_of(9, framed(9, like, 1, 0, None)) is None
    for request in (
        ProduceRequest("transactional", -1, 100, [("t", [(0, b"batch")])]),
        ProduceRequest(None, -1, 100, [("t", [(0, b"batch"), (1, b"batch")])]),
        ProduceRequest(None, -1, 100, [("t", [(0, b"batch")]), ("u", [(0, b"batch")])]),
        ProduceRequest(None, -1, 100, []),
    ):
        frame = b"".join(
            encode_request_frame(ApiKey.PRODUCE, 9, 1, None, encode_produce_request(9, request))
        )[4:]
        assert shape_of(9, frame) is None


def test_a_request_with_tagged_fields_has_no_shape() -> None:
    frame = bytearray(framed(9, (None, -1, 100, "t"), 1, 0, b"batch"))
    frame[-1:] = b"\x01\x07\x01x"
    try:
        assert shape_of(9, bytes(frame)) is None
    except ProtocolError:
        raise AssertionError("the tag must be one that the codec skips") from None
