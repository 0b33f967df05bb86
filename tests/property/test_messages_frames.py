"""A byte stream gives the same frames however the network cuts it, and headers survive the wire."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.framing import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
)
from tidelog.protocol.schema import APIS

MAX_FRAME_BYTES = 5_000_000

frame_sizes = st.one_of(
    st.integers(0, 40),
    st.integers(0, 5_000),
    st.sampled_from([65_531, 65_532, 65_533, 300_000, 2_097_148, 3_000_000]),
)
keys_and_versions = st.tuples(st.integers(0, 70), st.integers(0, 20))


def feed(reader: FrameReader, stream: bytes, chunk_sizes: list[int]) -> list[bytes]:
    """Plays the event loop: fills what `get_buffer` offers with the next chunk, round and round."""
    frames: list[bytes] = []
    position = 0
    turn = 0
    while position < len(stream):
        room = reader.get_buffer(-1)
        count = min(chunk_sizes[turn % len(chunk_sizes)], len(room), len(stream) - position)
        room[:count] = stream[position : position + count]
        frames.extend(map(bytes, reader.buffer_updated(count)))
        position += count
        turn += 1
    return frames


@given(
    sizes=st.lists(frame_sizes, max_size=12),
    chunk_sizes=st.lists(
        st.integers(1, 200) | st.sampled_from([4096, 65_536, 10_000_000]), min_size=1, max_size=6
    ),
)
def test_any_chunking_of_a_stream_gives_the_same_frames(sizes: list[int], chunk_sizes: list[int]) -> None:
    if sum(sizes) > 200_000:
        chunk_sizes = [max(size, 30_000) for size in chunk_sizes]
    frames = [
        bytes((index + position) % 251 for position in range(min(size, 64))).ljust(size, b"=")
        for index, size in enumerate(sizes)
    ]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader = FrameReader(MAX_FRAME_BYTES)
    assert feed(reader, stream, chunk_sizes) == frames
    assert reader.pending_bytes == 0
    reader.frames_served()
    assert reader.capacity_bytes <= 2 * 1024 * 1024 + 65_536


@given(stream=st.binary(max_size=300), chunk_sizes=st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_any_bytes_are_frames_or_a_protocol_error(stream: bytes, chunk_sizes: list[int]) -> None:
    with suppress(ProtocolError):
        feed(FrameReader(64), stream, chunk_sizes)


@given(
    key_and_version=keys_and_versions,
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=30),
    body=st.binary(max_size=50),
    split=st.booleans(),
)
def test_a_request_header_survives_the_wire(
    key_and_version: tuple[int, int], correlation_id: int, client_id: str | None, body: bytes, split: bool
) -> None:
    key, version = key_and_version
    parts = encode_request_frame(key, version, correlation_id, client_id, [body, body] if split else body)
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, start = decode_request_header(memoryview(frame)[4:])
    has_client_id = (key, version) != (7, 0)
    assert header == RequestHeader(key, version, correlation_id, client_id if has_client_id else None)
    assert frame[4 + start :] == (body + body if split else body)


@given(
    key_and_version=keys_and_versions,
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    body=st.binary(max_size=50),
    split=st.booleans(),
)
def test_a_response_header_survives_the_wire(
    key_and_version: tuple[int, int], correlation_id: int, body: bytes, split: bool
) -> None:
    key, version = key_and_version
    parts = encode_response_frame(key, version, correlation_id, [body, body] if split else body)
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found, start = decode_response_header(key, version, memoryview(frame)[4:])
    assert found == correlation_id
    assert frame[4 + start :] == (body + body if split else body)


@given(key=st.sampled_from(sorted(APIS)), rest=st.binary(max_size=40), version=st.integers(0, 20))
def test_any_bytes_are_a_header_or_a_protocol_error(key: int, rest: bytes, version: int) -> None:
    frame = memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest)
    with suppress(ProtocolError):
        decode_request_header(frame)
    with suppress(ProtocolError):
        decode_response_header(key, version, frame)
