"""Where the catalog persists: the interface that any transactional store can serve.

A writer of the catalog calls `commit`; a follower applies the deltas of all writers, which `watch` gives. A
store that several brokers share also keeps their sessions (`SharedStore`).

Invariants:
- `commit` is atomic and durable when it returns; when it raises, `settle` says whether it is stored, and all
  that `load` shows is durable;
- it names the revision it builds on, and fails with StoreConflict when another writer came first;
- a commit without an answer may still arrive later. After `settle` it cannot any more;
- `watch` gives every commit after a revision, once it is durable, each once and in order, or raises. So does
  one whose `commit` raised, when `settle` finds that it is stored;
- `load` gives all that was committed, or raises; never a part of it, and never nothing in its place.
"""

import base64
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog, Delta

STORE_FAILED_ADVICE: Final = (
    "check what cluster.store names, or the disk of the data folder where it names nothing; then try again"
)


class StoreError(Exception):
    """The store cannot be used as it is; the message says what to do."""


class StoreConflict(Exception):
    """Another writer committed since the revision this commit builds on: nothing is stored. Decide again on
    the newest image."""


class SessionLives(StoreConflict):
    """The broker that a commit must be without has a session: nothing is stored."""


class SessionHeld(StoreError):
    """Another incarnation of this broker has a session that lives."""


class Commit(NamedTuple):
    """Deltas that became durable together; `revision` is that of the store after them."""

    revision: int
    deltas: tuple[Delta, ...]
    nonce: str = ""
    """What distinguishes it from a commit that leads to the same revision in a store that was restored, and
    changed again; empty if the store does not keep it."""


class SeenCommit(NamedTuple):
    """A commit that a broker has seen, as it is noted outside of the store."""

    revision: int = 0
    nonce: str = ""
    """As that of `Commit`."""

    def may_have(self, nonce: str) -> bool:
        """Whether a commit at this revision with this nonce may be it: an older release wrote none."""
        return self.nonce == nonce or not (self.nonce and nonce)


class BrokerSession(NamedTuple):
    """A start of a broker that is alive, as far as the store knows."""

    node_id: int
    incarnation: UUID


class StoreMember(NamedTuple):
    """One of several members of a store, as it says itself."""

    url: str
    problem: str = ""
    """Why it does not serve; empty if it does."""
    version: str = ""
    cluster_id: str = ""
    """Of the members that it belongs to; empty if it did not say."""
    alarms: tuple[str, ...] = ()
    """Such as NOSPACE; those of all members."""
    used: float = 0
    """Share of its quota; 0 if it did not say."""


class StoreView(NamedTuple):
    """What a broker sees of its store."""

    members: tuple[StoreMember, ...] = ()
    is_lost: bool = False
    """Whether the store has another catalog, none, or an older one than this broker."""


@runtime_checkable
class WatchedStore(Protocol):
    """A store of several members, which may fail one by one, and may be restored from an older backup."""

    @property
    def view(self) -> StoreView: ...

    @property
    def seen(self) -> SeenCommit:
        """The newest commit that this broker was given, or a newer one: the image is not beyond it."""

    async def holds(self, seen: SeenCommit) -> bool:
        """Whether the catalog goes back to this commit, as far as its journal shows."""


class ClusterStore(Protocol):
    """What the broker needs of a store. Every call may raise OSError or StoreError."""

    @property
    def is_newest(self) -> bool:
        """Whether what was loaded first is known to be the newest that was ever committed."""

    async def load(self) -> Catalog:
        """The whole image at its newest revision."""

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        """Make the deltas durable, all or none.

        `nonce` names this commit for `settle`. Raises StoreConflict when `expected_revision` is not the
        newest, and SessionLives while the broker `without_session` has a session; nothing is stored then.
        After any other error they may be stored, or be stored later: ask `settle`.
        """

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        """Whether a commit that raised is stored; if not, it never will be.

        `nonce` and `expected_revision` are those of the last commit that the caller made.
        """

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        """What was committed after `revision`, oldest first, then each commit as it is made.

        Ends when the store is closed. Raises StoreError if the commits after `revision` are not kept any
        more: then use `load`.
        """

    async def close(self) -> None:
        """Release what the store holds. No call may follow."""


@runtime_checkable
class SharedStore(ClusterStore, Protocol):
    """A store that several brokers share. Each broker has an object of its own, with at most one session."""

    @property
    def session_valid_until_ms(self) -> float:
        """Until when no other broker can see this one's session as ended: milliseconds of `time.monotonic`,
        counted from before the last keepalive was sent. In the past without a session."""

    @property
    def session_revision(self) -> int:
        """The store's revision when the session began, or began again. Others may have fenced this broker
        before: only an image of this revision or a later one shows that."""

    async def begin_session(self, session: BrokerSession, ended: UUID | None = None) -> None:
        """Begin a session, which the store keeps alive until `end_session` or `close`. It takes the place of
        that of `ended`, an incarnation of this broker whose process has certainly ended.

        It may end meanwhile, because the store cannot be reached: then the store begins it again as soon as
        it can. Raises SessionHeld.
        """

    async def end_session(self) -> None:
        """End it at once, so that others need not wait for its timeout."""

    def watch_sessions(self) -> AsyncIterator[frozenset[BrokerSession]]:
        """All sessions that live, now and each time they change. Ends when the store is closed."""


def new_cluster_id() -> str:
    """A random UUID in URL-safe base64 without padding: the 22 characters that Kafka uses."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
