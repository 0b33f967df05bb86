"""Clients written by others, behind one interface, so that each can read what each other wrote.

Owns `Message` (a record as the wire knows it) and the `Peer` protocol. Nothing here knows Tidelog: a peer
gets an address and uses its own library unmodified. Every peer produces idempotently with acks=all.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record as it should be on every reader's side. `timestamp` is in milliseconds."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Stored(NamedTuple):
    """A record as a reader found it."""

    offset: int
    message: Message


class Peer(Protocol):
    """A client library. `address` is host:port."""

    name: str

    def can_write(self, message: Message) -> bool:
        """Whether the library's own arguments allow such a record."""

    def create_topics(self, address: str, partitions: Mapping[str, int]) -> None:
        """Create topics by name with so many partitions."""

    def delete_topic(self, address: str, topic: str) -> None:
        """Delete a topic."""

    def write(
        self, address: str, topics: Mapping[str, tuple[str, Sequence[Message]]]
    ) -> dict[str, list[tuple[int, int, int]]]:
        """Write to each topic, with its codec, its messages; (partition, offset, timestamp) of each as
        acknowledged."""

    def read(self, address: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Stored]]:
        """Read each (topic, partition) by assignment from its beginning up to the offset `ends`."""

    def offsets(
        self, address: str, topic: str, partition: int, timestamp: int
    ) -> tuple[int, int, int | None]:
        """First offset, next offset, and the first offset at or after `timestamp` (None without one)."""
