"""Reading and writing of lengths, strings, bytes and tagged fields for the hand-tuned codecs, in both forms.

Owns: `CLASSIC` (int16 and int32 lengths, -1 for null), `FLEXIBLE` (unsigned varints of length + 1, 0 for
null, tagged fields after every struct) and `BY_ID` (`FLEXIBLE`, with topics by id). A codec is written once
and chooses a form by version.
`protocol.schema.APIS` says which versions exist and which are flexible.
Invariants: readers take a view and a position, and return the value and the position after it. A length is
compared with the remaining bytes before any allocation. Bytes are returned as slices of the view. For
malformed bytes they raise the exceptions in MALFORMED, which the codecs turn into one ProtocolError.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import APIS, MAX_RESPONSE_ELEMENTS, Api, ApiKey
from tidelog.protocol.types import Buffer
from tidelog.protocol.varint import MAX_SKIPPED_TAGGED_FIELDS, read_unsigned_varint, unsigned_varint

# The exceptions of readers and writers for malformed bytes, or for values that cannot be encoded.
MALFORMED = (ProtocolError, struct.error, IndexError, UnicodeError)

NO_LEADER = (-1, -1)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">iiB")
_NODE_ENDPOINTS_TAG: Final = 0
_SMALLEST_ENDPOINT: Final = 11
"""Bytes of an endpoint with an empty host and no rack."""

TAG_BYTES_PER_ELEMENT = 8
"""This many bytes of unknown tagged fields count as one element (see `protocol.steps`)."""

# Topics repeat in each request. Kafka allows no longer names, so longer ones are not cached.
CACHED_NAMES = 4096
LONGEST_CACHED_NAME = 249


TopicKey = str | UUID
"""A topic as a request names it: its name or, from the version on that `Forms` has, its id (KIP-516)."""


class Form(NamedTuple):
    """The primitives of one encoding. `smallest` in `read_count(body, position, smallest)` is the smallest
    size of an element; it returns -1 for null."""

    read_count: Callable[[memoryview, int, int], tuple[int, int]]
    read_string: Callable[[memoryview, int], tuple[str | None, int]]
    read_topic: Callable[[memoryview, int], tuple[TopicKey, int]]
    read_bytes: Callable[[memoryview, int], tuple[memoryview | None, int]]
    skip_tags: Callable[[memoryview, int], int]
    write_count: Callable[[int], bytes]
    write_string: Callable[[str | None], bytes]
    write_name: Callable[[str], bytes]
    write_topic: Callable[[Any], bytes]
    no_tags: bytes


class NodeEndpoint(NamedTuple):
    """A broker that leads a partition of an answer, at the address that it advertises (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def read_name(form: Form, body: memoryview, position: int) -> tuple[str, int]:
    """A string that must not be null."""
    name, after = form.read_string(body, position)
    if name is None:
        raise ProtocolError(f"expected a name, got null at byte {position}")
    return name, after


def read_size(form: Form, body: memoryview, position: int, smallest: int, most: int) -> tuple[int, int]:
    """The length of an array that must not be null, with at least `smallest` bytes per element and at most
    `most` elements: an element of three bytes becomes an object of a hundred, so a limit in bytes is not
    enough."""
    count, after = form.read_count(body, position, smallest)
    if not 0 <= count <= most:
        raise ProtocolError(f"expected 0 to {most} elements, got {count} at byte {position}")
    return count, after


def require_end(body: memoryview, position: int) -> None:
    """Raise ProtocolError unless the message ends here."""
    if position != len(body):
        raise ProtocolError(f"the message ends at byte {position}, {len(body) - position} bytes follow")


def read_tags(body: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """The tagged fields at this position, undecoded."""
    count, position = read_unsigned_varint(body, position)
    if count > MAX_SKIPPED_TAGGED_FIELDS:
        raise ProtocolError(f"expected at most {MAX_SKIPPED_TAGGED_FIELDS} tagged fields, got {count}")
    tags: dict[int, memoryview] = {}
    previous = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(body, position)
        if tag <= previous:
            raise ProtocolError(f"expected tags in ascending order, got {tag} after {previous}")
        size, position = read_unsigned_varint(body, position)
        tags[tag] = _take(body, position, size)
        position += size
        previous = tag
    return tags, position


def write_tags(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Tagged fields in ascending order of their tags."""
    encoded = [b"".join((unsigned_varint(tag), unsigned_varint(len(data)), data)) for tag, data in fields]
    return unsigned_varint(len(encoded)) + b"".join(encoded)


def read_leader(data: memoryview | None) -> tuple[int, int]:
    """Leader id and leader epoch from the tagged field with the current leader (KIP-951)."""
    if data is None:
        return NO_LEADER
    leader_id, leader_epoch, _ = _LEADER.unpack_from(data)
    require_end(data, _skip_tags(data, _LEADER.size - 1))
    return leader_id, leader_epoch


def write_leader(leader: tuple[int, int]) -> bytes:
    return _LEADER.pack(*leader, 0)


def read_node_endpoints(body: memoryview, position: int) -> tuple[list[NodeEndpoint], int]:
    """The brokers that the tagged fields at the end of an answer name (KIP-951)."""
    if not body[position]:
        return [], position + 1
    tags, position = read_tags(body, position)
    data = tags.get(_NODE_ENDPOINTS_TAG)
    endpoints: list[NodeEndpoint] = []
    if data is not None:
        count, at = read_size(FLEXIBLE, data, 0, _SMALLEST_ENDPOINT, MAX_RESPONSE_ELEMENTS)
        for _ in range(count):
            (node_id,) = _INT32.unpack_from(data, at)
            host, at = read_name(FLEXIBLE, data, at + 4)
            (port,) = _INT32.unpack_from(data, at)
            rack, at = FLEXIBLE.read_string(data, at + 4)
            at = _skip_tags(data, at)
            endpoints.append(NodeEndpoint(node_id, host, port, rack))
        require_end(data, at)
    return endpoints, position


def with_node_endpoints(body: Sequence[Buffer], endpoints: Sequence[NodeEndpoint]) -> list[Buffer]:
    """An encoded answer, which ends with no tagged fields, with these in place of none."""
    parts = [_write_flexible_count(len(endpoints))]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), _write_flexible_string(host), _INT32.pack(port))
        parts += (_write_flexible_string(rack), b"\0")
    tags = write_tags([(_NODE_ENDPOINTS_TAG, b"".join(parts))])
    return [*body[:-1], bytes(body[-1])[:-1] + tags]


def _take(body: memoryview, position: int, size: int) -> memoryview:
    end = position + size
    if size < 0 or end > len(body):
        raise ProtocolError(f"{size} bytes at byte {position}, {len(body) - position} are left")
    return body[position:end]


def _check_count(body: memoryview, position: int, count: int, smallest: int) -> None:
    if count < -1 or count * smallest > len(body) - position:
        raise ProtocolError(f"array of {count} at byte {position}, {len(body) - position} bytes are left")


def _read_classic_count(body: memoryview, position: int, smallest: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(body, position)
    _check_count(body, position + 4, count, smallest)
    return count, position + 4


def _read_classic_string(body: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(body, position)
    position += 2
    if size == -1:
        return None, position
    return str(_take(body, position, size), "utf-8"), position + size


def _read_classic_bytes(body: memoryview, position: int) -> tuple[memoryview | None, int]:
    (size,) = _INT32.unpack_from(body, position)
    position += 4
    if size == -1:
        return None, position
    return _take(body, position, size), position + size


def _write_classic_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _INT16.pack(len(data)) + data


def _read_flexible_count(body: memoryview, position: int, smallest: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(body, position)
    _check_count(body, position, count - 1, smallest)
    return count - 1, position


def _read_flexible_string(body: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_unsigned_varint(body, position)
    if size == 0:
        return None, position
    return str(_take(body, position, size - 1), "utf-8"), position + size - 1


def _read_flexible_bytes(body: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = read_unsigned_varint(body, position)
    if size == 0:
        return None, position
    return _take(body, position, size - 1), position + size - 1


def _skip_tags(body: memoryview, position: int) -> int:
    return position + 1 if not body[position] else read_tags(body, position)[1]


def _write_flexible_count(count: int) -> bytes:
    return unsigned_varint(count + 1)


def _write_flexible_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return unsigned_varint(len(data) + 1) + data


_cached_classic_string = lru_cache(CACHED_NAMES)(_write_classic_string)
_cached_flexible_string = lru_cache(CACHED_NAMES)(_write_flexible_string)


def _write_classic_name(name: str) -> bytes:
    return _cached_classic_string(name) if len(name) <= LONGEST_CACHED_NAME else _write_classic_string(name)


def _write_flexible_name(name: str) -> bytes:
    return _cached_flexible_string(name) if len(name) <= LONGEST_CACHED_NAME else _write_flexible_string(name)


def _read_classic_topic(body: memoryview, position: int) -> tuple[TopicKey, int]:
    return read_name(CLASSIC, body, position)


def _read_flexible_topic(body: memoryview, position: int) -> tuple[TopicKey, int]:
    return read_name(FLEXIBLE, body, position)


@lru_cache(CACHED_NAMES)
def _topic_id(data: bytes) -> UUID:
    return UUID(bytes=data)


def _read_topic_id(body: memoryview, position: int) -> tuple[TopicKey, int]:
    return _topic_id(bytes(_take(body, position, 16))), position + 16


def _write_topic_id(topic_id: UUID) -> bytes:
    return topic_id.bytes


CLASSIC = Form(
    read_count=_read_classic_count,
    read_string=_read_classic_string,
    read_topic=_read_classic_topic,
    read_bytes=_read_classic_bytes,
    skip_tags=lambda _, position: position,
    write_count=_INT32.pack,
    write_string=_write_classic_string,
    write_name=_write_classic_name,
    write_topic=_write_classic_name,
    no_tags=b"",
)

FLEXIBLE = Form(
    read_count=_read_flexible_count,
    read_string=_read_flexible_string,
    read_topic=_read_flexible_topic,
    read_bytes=_read_flexible_bytes,
    skip_tags=_skip_tags,
    write_count=_write_flexible_count,
    write_string=_write_flexible_string,
    write_name=_write_flexible_name,
    write_topic=_write_flexible_name,
    no_tags=b"\0",
)

BY_ID = FLEXIBLE._replace(read_topic=_read_topic_id, write_topic=_write_topic_id)

FIRST_BY_ID: Final = 13
"""Produce and Fetch name topics by id from this version on."""


def _flexible(version: int) -> Form:
    return FLEXIBLE if version < FIRST_BY_ID else BY_ID


class Forms(dict[int, Form]):
    """The form of each version with a codec of an API. Any other version raises ProtocolError."""

    def __init__(self, api: Api) -> None:
        super().__init__(
            (version, CLASSIC if version < api.first_flexible_version else _flexible(version))
            for version in range(api.min_version, api.max_version + 1)
        )
        self._api = api

    def __missing__(self, version: int) -> Form:
        name, first, last = self._api.name, self._api.min_version, self._api.max_version
        raise ProtocolError(f"expected {name} version {first} to {last}, got {version}")


PRODUCE_FORMS: Final = Forms(APIS[ApiKey.PRODUCE])
FETCH_FORMS: Final = Forms(APIS[ApiKey.FETCH])
