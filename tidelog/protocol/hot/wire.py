"""Writing of lengths, strings and tagged fields for the hand-tuned encoders, in both forms.

Owns: `CLASSIC` (int16 and int32 lengths, -1 for null), `FLEXIBLE` (unsigned varints of length + 1, 0 for
null, tagged fields after every struct) and `BY_ID` (`FLEXIBLE`, with topics by id). An encoder is written
once and chooses a form by version. `protocol.schema.APIS` says which versions exist and which are flexible.
It also has what both messages share: endpoints of leaders, and the field that names a topic.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import APIS, Api, ApiKey
from tidelog.protocol.types import Buffer
from tidelog.protocol.varint import unsigned_varint

# The exceptions of the fast paths for malformed bytes, and of writers for values that cannot be encoded.
MALFORMED = (ProtocolError, struct.error, IndexError, UnicodeError)

NO_LEADER = (-1, -1)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">iiB")
_NODE_ENDPOINTS_TAG: Final = 0

# Topics repeat in each request. Kafka allows no longer names, so longer ones are not cached.
CACHED_NAMES = 4096
LONGEST_CACHED_NAME = 249


TopicKey = str | UUID
"""A topic as a request names it: its name or, from the version on that `Forms` has, its id (KIP-516)."""


class Form(NamedTuple):
    """The writers of one encoding."""

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


def write_tags(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Tagged fields in ascending order of their tags."""
    encoded = [b"".join((unsigned_varint(tag), unsigned_varint(len(data)), data)) for tag, data in fields]
    return unsigned_varint(len(encoded)) + b"".join(encoded)


def write_leader(leader: tuple[int, int]) -> bytes:
    return _LEADER.pack(*leader, 0)


def leader_of(partition: Any) -> tuple[int, int]:
    """Leader id and leader epoch of a decoded partition (KIP-951)."""
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


def node_endpoints_of(response: Any) -> list[NodeEndpoint]:
    """The brokers that the decoded answer names (KIP-951)."""
    return [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]


def topic_field(version: int, name: str) -> str:
    """The field that names a topic: `name`, or the one with its id."""
    return name if version < FIRST_BY_ID else "topic_id"


def with_node_endpoints(body: Sequence[Buffer], endpoints: Sequence[NodeEndpoint]) -> list[Buffer]:
    """An encoded answer, which ends with no tagged fields, with these in place of none."""
    parts = [_write_flexible_count(len(endpoints))]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), _write_flexible_string(host), _INT32.pack(port))
        parts += (_write_flexible_string(rack), b"\0")
    tags = write_tags([(_NODE_ENDPOINTS_TAG, b"".join(parts))])
    return [*body[:-1], bytes(body[-1])[:-1] + tags]


def _write_classic_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _INT16.pack(len(data)) + data


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


def _write_topic_id(topic_id: UUID) -> bytes:
    return topic_id.bytes


CLASSIC = Form(
    write_count=_INT32.pack,
    write_string=_write_classic_string,
    write_name=_write_classic_name,
    write_topic=_write_classic_name,
    no_tags=b"",
)

FLEXIBLE = Form(
    write_count=_write_flexible_count,
    write_string=_write_flexible_string,
    write_name=_write_flexible_name,
    write_topic=_write_flexible_name,
    no_tags=b"\0",
)

BY_ID = FLEXIBLE._replace(write_topic=_write_topic_id)

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
