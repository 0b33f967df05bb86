"""The kinds of records in the log of an internal partition, and their encoding as key and value.

Owns the choice of the encoding: the class of a record decides how it is written, the version of a key how it
is read. Invariants: a tombstone is written without a value; keys of unknown kinds are ignored, because a
later version of this broker may have written them.

Pure. Source: Kafka's GroupCoordinatorRecordSerde.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tidelog.protocol.coordinator_records import record_version


class RecordKind(NamedTuple):
    """How to encode records of `record_type`, with keys of `key_versions`. `decode` raises ProtocolError."""

    record_type: type
    key_versions: tuple[int, ...]
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], Any]
    adds_to: int | None = None
    """Of a kind whose records hold with an earlier one: the version of its key, which is the same otherwise.
    None: a record takes the place of all earlier ones of its key."""


class RecordFormats:
    """The kinds of one internal topic."""

    def __init__(self, kinds: Iterable[RecordKind]) -> None:
        self._by_type: dict[type, RecordKind] = {}
        self._by_version: dict[int, RecordKind] = {}
        for kind in kinds:
            self._by_type[kind.record_type] = kind
            self._by_version.update(dict.fromkeys(kind.key_versions, kind))

    def knows(self, key: bytes) -> bool:
        """Whether `decode` can read the records of this key. Raises ProtocolError for an invalid key."""
        return record_version(key) in self._by_version

    def added_to(self, key: bytes) -> bytes | None:
        """The key of the record with which those of this key hold; None: each holds alone."""
        version = self._by_version[record_version(key)].adds_to
        return None if version is None else version.to_bytes(2, "big") + key[2:]

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """Key and value."""
        return self._by_type[type(record)].encode(record)

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """The record. Raises ProtocolError."""
        return self._by_version[record_version(key)].decode(key, value)
