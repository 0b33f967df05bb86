"""Frames and headers: bounds before memory, one buffer for tiny and for large frames."""

import pytest

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.framing import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
)
from tidelog.protocol.schema import ApiKey

MIB = 1024 * 1024


def receive(reader: FrameReader, data: bytes) -> list[bytes]:
    """Everything at once where there is room, else in as many reads as the buffer needs."""
    frames: list[bytes] = []
    while data:
        room = reader.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames.extend(map(bytes, reader.buffer_updated(count)))
        data = data[count:]
    return frames


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_frames_are_views_of_the_buffer_and_not_copies() -> None:
    reader = FrameReader(MIB)
    room = reader.get_buffer(-1)
    room[:7] = framed(b"abc")
    (frame,) = reader.buffer_updated(7)
    room[4:7] = b"xyz"
    assert bytes(frame) == b"xyz"


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x10\x00\x01", b"GET "])
def test_a_length_that_is_negative_or_above_the_limit_is_refused_before_memory_is_taken(
    length: bytes,
) -> None:
    reader = FrameReader(MIB)
    before = reader.capacity_bytes
    with pytest.raises(ProtocolError, match="frame length: expected 0 to 1048576, got"):
        receive(reader, length)
    assert reader.capacity_bytes == before


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    assert receive(FrameReader(MIB), framed(bytes(MIB))) == [bytes(MIB)]


def test_memory_is_taken_for_bytes_that_came_and_not_for_bytes_that_were_announced() -> None:
    for announced in (5_000, 64 * 1024, MIB, 2 * MIB, 100 * MIB):
        reader = FrameReader(100 * MIB)
        start = reader.capacity_bytes
        came = 0
        data = announced.to_bytes(4, "big") + bytes(min(announced, 16 * MIB) - 1)
        while came < len(data):
            room = reader.get_buffer(-1)
            assert reader.capacity_bytes <= max(start, 4 * came)
            count = min(len(room), len(data) - came, 3_000)
            room[:count] = data[came : came + count]
            assert reader.buffer_updated(count) == []
            came += count
        assert reader.missing_bytes == announced + 4 - came


@pytest.mark.parametrize("most", [100 * MIB, 5000])
def test_all_memory_that_a_reader_takes_was_granted(most: int) -> None:
    granted: list[int] = []

    def grant(count: int) -> int:
        granted.append(min(count, most))
        return granted[-1]

    reader = FrameReader(100 * MIB, grant)
    start = reader.capacity_bytes
    payload = bytes(range(256)) * 4 * 512
    assert receive(reader, framed(payload)[:-1]) == []
    assert start + sum(granted) == reader.capacity_bytes > len(payload)
    assert receive(reader, framed(payload)[-1:]) == [payload]


def test_a_buffer_that_nothing_is_in_is_released_and_one_that_a_frame_has_begun_to_fill_is_not() -> None:
    reader = FrameReader(100 * MIB)
    start = reader.capacity_bytes
    receive(reader, framed(bytes(MIB)))
    reader.release()
    assert reader.capacity_bytes == start
    payload = bytes(range(256)) * 4096
    assert receive(reader, framed(payload)[:-1]) == []
    reader.release()
    assert reader.capacity_bytes > MIB - 4
    assert receive(reader, framed(payload)[-1:] + framed(b"after")) == [payload, b"after"]


def test_the_buffer_of_a_large_frame_counts_until_the_frame_is_served() -> None:
    reader = FrameReader(100 * MIB)
    large = bytes(range(256)) * 40_000
    frames = receive(reader, framed(large) + framed(b"after")[:6])
    assert frames == [large]
    assert reader.capacity_bytes > len(large)
    reader.frames_served()
    assert reader.capacity_bytes <= 65_536
    assert receive(reader, framed(b"after")[6:]) == [b"after"]


def test_a_middling_buffer_is_kept_for_the_next_frame_and_shrinks_after_a_while_of_small_ones() -> None:
    reader = FrameReader(100 * MIB)
    for _ in range(3):
        receive(reader, framed(bytes(MIB)))
        assert reader.capacity_bytes > MIB
    for _ in range(70):
        receive(reader, framed(b"small"))
    assert reader.capacity_bytes <= 65_536


def test_who_sends_much_in_small_frames_is_read_in_large_steps() -> None:
    reader = FrameReader(MIB)
    receive(reader, framed(b"small") * 10_000)
    assert len(reader.get_buffer(-1)) > 50_000


def test_a_large_frame_in_many_small_reads_is_copied_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = FrameReader(64 * MIB)
    copied: list[int] = []
    move = FrameReader._move

    def counted(self: FrameReader, capacity: int) -> None:
        copied.append(self.pending_bytes)
        move(self, capacity)

    monkeypatch.setattr(FrameReader, "_move", counted)
    data = memoryview(framed(bytes(32 * MIB)))
    frames = 0
    for position in range(0, len(data), 50_000):
        chunk = data[position : position + 50_000]
        while chunk:
            room = reader.get_buffer(-1)
            count = min(len(room), len(chunk))
            room[:count] = chunk[:count]
            frames += len(reader.buffer_updated(count))
            chunk = chunk[count:]
    assert frames == 1
    assert sum(copied) <= 4 / 3 * len(data)


def test_a_header_of_an_api_that_is_unknown_or_has_no_version_here_is_read() -> None:
    unknown = bytes.fromhex("03e7 0009 00000007 ffff 00")
    assert decode_request_header(memoryview(unknown)) == (RequestHeader(999, 9, 7, None), 10)
    oldest = bytes.fromhex("0007 0000 00000007 ffff")
    assert decode_request_header(memoryview(oldest)) == (RequestHeader(7, 0, 7, None), 8)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000007 ffff 01 00 02 aabb") + b"body"
    header, start = decode_request_header(memoryview(frame))
    assert header.correlation_id == 7
    assert frame[start:] == b"body"


def test_the_parts_of_a_body_are_not_copied() -> None:
    records = memoryview(bytes(100_000))
    parts = encode_response_frame(ApiKey.FETCH, 11, 7, [b"head", records, b"tail"])
    assert parts[2] is records
    assert parts[0][:4] == (4 + 4 + 100_000 + 4).to_bytes(4, "big")
    assert encode_request_frame(ApiKey.PRODUCE, 8, 7, "c", records)[1] is records


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        ("", "expected 8 bytes or more, got 0"),
        ("0003 0001 00000007", "expected 10 bytes or more, got 8"),
        ("0003 0001 00000007 fffe", "client_id: expected a string or null, got length -2"),
        ("0003 0001 00000007 0005 6161", "client_id: expected 5 bytes, 2 bytes remain"),
        ("0003 0001 00000007 0001 ff", "client_id: expected UTF-8"),
        ("0003 0009 00000007 ffff", "varint"),
        ("0003 0009 00000007 ffff 01", "varint"),
        ("0003 0009 00000007 ffff 01 00 05 aa", "tagged field 0"),
    ],
)
def test_a_broken_request_header_says_what_was_expected(octets: str, fault: str) -> None:
    with pytest.raises(ProtocolError, match=fault):
        decode_request_header(memoryview(bytes.fromhex(octets)))


def test_a_response_too_short_for_its_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="expected 4 bytes or more, got 3"):
        decode_response_header(ApiKey.METADATA, 0, bytes(3))
    with pytest.raises(ProtocolError, match="varint"):
        decode_response_header(ApiKey.METADATA, 9, bytes(4))


def test_a_client_id_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(ProtocolError, match="at most 32767 bytes"):
        encode_request_frame(ApiKey.METADATA, 1, 7, "c" * 40_000, b"")
