"""The primitive types: Kafka's bytes, and bounds that hold before memory is taken."""

import tracemalloc
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Field, Message
from tidelog.protocol.primitives import WireError, read_varint
from tidelog.protocol.varint import read_unsigned_varint, skip_tagged_fields, unsigned_varint

HUGE = 2**31 - 1


@dataclass(frozen=True)
class WireType:
    """The type of the only field of a message."""

    name: str
    compact: bool = False
    nullable: bool = False
    fields: tuple[Field, ...] = ()

    def codec(self, max_elements: int = 100) -> Codec:
        field = Field("value", self.name, "0+", self.fields, nullable="0+" if self.nullable else "")
        return Codec(Message("One", "0+" if self.compact else "", (field,)), 0, max_elements)


def parsed(wire_type: WireType, data: bytes) -> Any:
    return wire_type.codec().decode(data + bytes(wire_type.compact)).value


def built(wire_type: WireType, value: object) -> bytes:
    body = wire_type.codec().encode({"value": value})
    return body[:-1] if wire_type.compact else body  # Without the tagged fields.


def text(*, compact: bool = False, nullable: bool = False) -> WireType:
    return WireType("string", compact, nullable)


def blob(*, compact: bool = False, nullable: bool = False) -> WireType:
    return WireType("bytes", compact, nullable)


def int32s(*, compact: bool = False, nullable: bool = False) -> WireType:
    return WireType("[]int32", compact, nullable)


def texts(*, compact: bool = False, nullable: bool = False) -> WireType:
    return WireType("[]string", compact, nullable)


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_an_unsigned_varint_has_its_bytes_in_both_readers(value: int, octets: str) -> None:
    data = bytes.fromhex(octets)
    assert unsigned_varint(value) == data
    assert read_varint(data, 0) == (value, len(data))
    assert read_unsigned_varint(b"xx" + data, 2) == (value, 2 + len(data))


@pytest.mark.parametrize("octets", ["", "80", "ffffffff", "ffffffff10", "808080808000", "ffffffffff01"])
def test_a_varint_that_is_cut_or_longer_than_32_bits_is_refused(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(WireError, match="varint"):
        read_varint(data, 0)
    with pytest.raises(ProtocolError, match="varint"):
        read_unsigned_varint(data, 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_value_that_no_varint_holds_is_refused(value: int) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        unsigned_varint(value)


def test_tagged_fields_are_skipped_within_bounds() -> None:
    assert skip_tagged_fields(b"\x00rest", 0) == 1
    assert skip_tagged_fields(b"\x02\x00\x01a\x05\x02bcrest", 0) == 8
    with pytest.raises(ProtocolError, match="tagged field 0, 1 bytes remain"):
        skip_tagged_fields(b"\x01\x00\x05a", 0)
    with pytest.raises(ProtocolError, match="at most 1024 tagged fields"):
        skip_tagged_fields(unsigned_varint(1025) + bytes(5000), 0)


@pytest.mark.parametrize(
    ("wire_type", "value", "octets"),
    [
        (text(), "", "0000"),
        (text(), "hé", "0003 68c3a9"),
        (text(nullable=True), None, "ffff"),
        (text(compact=True), "", "01"),
        (text(compact=True), "ab", "03 6162"),
        (text(compact=True, nullable=True), None, "00"),
        (blob(), b"ab", "00000002 6162"),
        (blob(nullable=True), None, "ffffffff"),
        (blob(compact=True), b"ab", "03 6162"),
        (blob(compact=True, nullable=True), None, "00"),
        (int32s(), [1, -1], "00000002 00000001 ffffffff"),
        (int32s(compact=True), [], "01"),
        (int32s(compact=True, nullable=True), None, "00"),
        (texts(), ["a"], "00000001 000161"),
        (texts(nullable=True), None, "ffffffff"),
        (texts(compact=True), ["a", ""], "03 0261 01"),
        (WireType("uuid"), UUID(int=1), "00" * 15 + "01"),
    ],
)
def test_a_value_has_kafka_s_bytes(wire_type: WireType, value: object, octets: str) -> None:
    data = bytes.fromhex(octets)
    assert built(wire_type, value) == data
    assert parsed(wire_type, data) == value


@pytest.mark.parametrize(
    ("wire_type", "octets", "fault"),
    [
        (text(), "ffff", "expected a string, got null"),
        (text(compact=True), "00", "expected a string, got null"),
        (text(nullable=True), "fffe", "expected a string or null, got length -2"),
        (text(), "00", "expected a length of 2 bytes, 1 bytes remain"),
        (text(), "000361", "expected a string of 3 bytes, 1 bytes remain"),
        (text(), "0002c328", "expected UTF-8"),
        (text(compact=True), "ffffffff0f", "at most 32767 bytes, got length 4294967294"),
        (blob(), "80000000", "expected bytes, got length -2147483648"),
        (blob(), "7fffffff61", "expected 2147483647 bytes, 1 bytes remain"),
        (blob(compact=True), "00", "expected bytes, got null"),
        (int32s(), "ffffffff", "expected an array, got null"),
        (int32s(), "00000002 00000001", "expected 2 elements of 4 bytes or more, 4 bytes remain"),
        (texts(), "00000001 000561", r"\[0\]: expected a string of 5 bytes, 1 bytes remain"),
        (WireType("uuid"), "00" * 15, "expected a uuid of 16 bytes, 15 bytes remain"),
    ],
)
def test_bytes_that_do_not_fit_say_what_was_expected_and_what_came(
    wire_type: WireType, octets: str, fault: str
) -> None:
    with pytest.raises(ProtocolError, match=fault):
        parsed(wire_type, bytes.fromhex(octets))


@pytest.mark.parametrize(
    ("wire_type", "value", "fault"),
    [
        (text(), None, "expected a string, got None"),
        (text(), 5, "expected str, got 5"),
        (text(), "a" * 32768, "at most 32767 bytes"),
        (text(), "\ud800", "UTF-8"),
        (blob(), "text", "expected bytes, bytearray or memoryview, got 'text'"),
        (int32s(), [1, 2**31], "expected int32 elements"),
        (int32s(), 5, "expected a list, got 5"),
        (texts(), ["a", 7], r"\[1\]: expected str, got 7"),
        (WireType("uuid"), "1", "expected uuid.UUID, got '1'"),
    ],
)
def test_values_that_do_not_fit_say_what_was_expected_and_what_came(
    wire_type: WireType, value: object, fault: str
) -> None:
    with pytest.raises(ProtocolError, match=fault):
        built(wire_type, value)


@pytest.mark.parametrize("wire_type", [int32s(), texts(), blob()], ids=["numbers", "strings", "bytes"])
def test_a_huge_length_takes_no_memory(wire_type: WireType) -> None:
    data = HUGE.to_bytes(4, "big") + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            parsed(wire_type, data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_elements_of_no_bytes_cannot_be_asked_for_without_end() -> None:
    nothing = WireType("[]struct")
    with pytest.raises(ProtocolError, match="2147483647 elements of 1 bytes or more, 3 bytes remain"):
        parsed(nothing, HUGE.to_bytes(4, "big") + bytes(3))


def test_the_elements_of_a_message_share_one_budget() -> None:
    both = Codec(Message("Both", "", (Field("a", "[]string"), Field("b", "[]string"))), 0, max_elements=3)
    with pytest.raises(ProtocolError, match="b: expected at most 1 more elements in the message, got 2"):
        both.decode(bytes.fromhex("00000002 0000 0000 00000002 0000 0000"))


def test_a_struct_names_the_number_at_fault() -> None:
    fields = (
        Field("error_code", "int16", "0+"),
        Field("is_internal", "bool", "0+"),
        Field("offset", "int64", "0+", default=-1),
    )
    numbers = Codec(Message("Numbers", "", fields), 0, max_elements=0)
    assert numbers.encode({"error_code": 3}) == bytes.fromhex("0003 00 ffffffffffffffff")
    found = numbers.decode(bytes.fromhex("0003 07 ffffffffffffffff"))
    assert found == {"error_code": 3, "is_internal": True, "offset": -1}
    for size, fault in [
        (5, "offset: expected int64, got the end of the message"),
        (2, "is_internal: expected bool, got the end of the message"),
    ]:
        with pytest.raises(ProtocolError, match=fault):
            numbers.decode(bytes(size))
    with pytest.raises(ProtocolError, match="error_code: expected int16, got 40000"):
        numbers.encode({"error_code": 40000})
    with pytest.raises(ProtocolError, match="offset: expected int64, got 'x'"):
        numbers.encode({"offset": "x"})
