"""Where the catalog persists: the interface that any transactional store can serve.

A writer of the catalog calls `commit`; a follower applies the deltas of all writers, which `watch` gives.

Invariants:
- `commit` is atomic and durable when it returns; when it raises, `load` shows whether it is stored, and all
  that it shows is durable;
- it names the revision it builds on, and fails with StoreConflict when another writer came first, so the
  interface carries over to a store that several brokers share (etcd: a transaction on a key's revision);
- `watch` gives every commit after a revision, once it is durable, each once and in order, or raises. So does
  one whose `commit` raised, when a `load` finds that it is stored;
- `load` gives all that was committed, or raises; never a part of it, and never nothing in its place.
"""

import base64
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from tidelog.broker.cluster.catalog import Catalog, Delta


class StoreError(Exception):
    """The store cannot be used as it is; the message says what to do."""


class StoreConflict(Exception):
    """Another writer committed since the revision this commit builds on: load again and decide again."""


class Commit(NamedTuple):
    """Deltas that became durable together; `revision` is that of the store after them."""

    revision: int
    deltas: tuple[Delta, ...]


class ClusterStore(Protocol):
    """What the broker needs of a store. Every call may raise OSError or StoreError."""

    @property
    def is_newest(self) -> bool:
        """Whether what was loaded first is known to be the newest that was ever committed."""

    async def load(self) -> Catalog:
        """The whole image at its newest revision."""

    async def commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        """Make the deltas durable, all or none.

        Raises StoreConflict when `expected_revision` is not the newest; nothing is stored then. After any
        other error they may be stored: the next `load` shows it.
        """

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        """What was committed after `revision`, oldest first, then each commit as it is made.

        Ends when the store is closed. Raises StoreError if the commits after `revision` are not kept any
        more: then use `load`.
        """

    async def close(self) -> None:
        """Release what the store holds. No call may follow."""


def new_cluster_id() -> str:
    """A random UUID in URL-safe base64 without padding: the 22 characters that Kafka uses."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
