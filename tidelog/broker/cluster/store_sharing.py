"""One store for several brokers of this machine: each gets an object of its own, with a session.

Owns the sessions. Invariants: a broker has at most one; a commit that must be without the session of a broker
is compared with the sessions in the same turn of the loop in which the store gets it; a member that is closed
has no session.

The sessions end with this process, like the store itself. Event loop only.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.store import BrokerSession, ClusterStore, Commit, SessionHeld, SessionLives


class StoreSharing:
    """A store, and the sessions of those who share it."""

    def __init__(self, store: ClusterStore) -> None:
        self.store = store
        self.sessions: dict[int, BrokerSession] = {}
        self._changed = asyncio.Event()
        self._is_closed = False

    def member(self) -> "StoreMember":
        """The store as one broker has it. Closing it does not close the store for the others."""
        return StoreMember(self)

    def begin(self, session: BrokerSession, ended: UUID | None = None) -> None:
        """Raises SessionHeld."""
        if self.sessions.get(session.node_id) == (session.node_id, ended):
            self.sessions[session.node_id] = session
        held = self.sessions.setdefault(session.node_id, session)
        if held != session:
            raise SessionHeld(
                f"another broker with node.id {session.node_id} is running; stop it, or set another node.id"
            )
        self._wake()

    def end(self, session: BrokerSession) -> None:
        if self.sessions.get(session.node_id) == session:
            del self.sessions[session.node_id]
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def watch(self) -> AsyncIterator[frozenset[BrokerSession]]:
        """The sessions that live, now and each time they change."""
        while not self._is_closed:
            changed, living = self._changed, frozenset(self.sessions.values())
            yield living
            await changed.wait()

    async def close(self) -> None:
        """Close the store itself."""
        self._is_closed = True
        self._wake()
        await self.store.close()


class StoreMember:
    """SharedStore for one broker. Its watches end with the store, not with this object."""

    def __init__(self, sharing: StoreSharing) -> None:
        self._sharing = sharing
        self._session: BrokerSession | None = None

    @property
    def is_newest(self) -> bool:
        return self._sharing.store.is_newest

    @property
    def session_valid_until_ms(self) -> float:
        return -math.inf if self._session is None else math.inf

    @property
    def session_revision(self) -> int:
        """No session begins again here."""
        return 0

    async def load(self) -> Catalog:
        return await self._sharing.store.load()

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        if without_session in self._sharing.sessions:
            raise SessionLives(f"broker {without_session} has a session")
        await self._sharing.store.commit(deltas, expected_revision, nonce=nonce)

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        return await self._sharing.store.settle(nonce, expected_revision)

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        return self._sharing.store.watch(revision)

    async def begin_session(self, session: BrokerSession, ended: UUID | None = None) -> None:
        self._sharing.begin(session, ended)
        self._session = session

    async def end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._sharing.end(session)

    def watch_sessions(self) -> AsyncIterator[frozenset[BrokerSession]]:
        return self._sharing.watch()

    async def close(self) -> None:
        await self.end_session()
