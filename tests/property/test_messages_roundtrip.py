"""Every message in every layout survives the wire, and bad bytes fail in one way only."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.messages import (
    FEWER_EXAMPLES,
    MESSAGE_IDS,
    MESSAGES,
    layouts_of,
    message_of,
    present,
    values_of,
)
from tidelog.protocol import schema
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import ApiKey

every_message = pytest.mark.parametrize(("key", "kind"), MESSAGES, ids=MESSAGE_IDS)


def encode(key: ApiKey, version: int, kind: str, values: dict[str, object]) -> bytes:
    return (schema.encode_request if kind == "request" else schema.encode_response)(key, version, values)


def decode(key: ApiKey, version: int, kind: str, body: bytes) -> dict[str, object]:
    decoded: dict[str, object] = (schema.decode_request if kind == "request" else schema.decode_response)(
        key, version, body
    )
    return decoded


@every_message
def test_what_is_encoded_is_decoded_and_encoded_again_and_nothing_else_is(key: ApiKey, kind: str) -> None:
    """A message that is cut at any byte is a protocol error, and an answer that has one more; damaged bytes
    may be one."""
    fields = message_of(key, kind).fields
    for version in layouts_of(key, kind):

        @FEWER_EXAMPLES
        @given(version=st.just(version), values=values_of(fields, version, {}), data=st.data())
        def survives(version: int, values: dict[str, object], data: st.DataObject) -> None:
            body = encode(key, version, kind, values)
            decoded = decode(key, version, kind, body)
            assert present(fields, version, decoded) == values
            assert set(decoded) == {field.name for field in fields}
            assert encode(key, version, kind, decoded) == body
            for size in range(len(body)):
                with pytest.raises(ProtocolError):
                    decode(key, version, kind, body[:size])
            if kind == "request":
                # As in Kafka: some clients leave bytes behind.
                assert decode(key, version, kind, body + b"\x00") == decoded
            else:
                with pytest.raises(ProtocolError):
                    decode(key, version, kind, body + b"\x00")
            if body:
                with suppress(ProtocolError):
                    decode(key, version, kind, damaged(body, data))

        survives()


def damaged(body: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(body)
    places = st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255))
    for position, octet in data.draw(st.lists(places, min_size=1, max_size=4)):
        changed[position] = octet
    return bytes(changed)


def test_any_bytes_decode_or_are_a_protocol_error() -> None:
    layouts = [(key, version, kind) for key, kind in MESSAGES for version in layouts_of(key, kind)]

    @given(body=st.binary(max_size=100))
    def decodes_or_not(body: bytes) -> None:
        for layout in layouts:
            with suppress(ProtocolError):
                decode(*layout, body)

    decodes_or_not()
