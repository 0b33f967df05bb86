"""The catalog in etcd, which several brokers on several machines share.

Owns what this broker knows of the head, the watches, and the guard over them. `etcd_layout` defines the keys,
`etcd_client` sends requests, `etcd_session` keeps the session.

Invariants:
- each transaction may be sent twice: it compares the last change of what it writes, and a commit that lost
  its answer is recognised by its nonce. So a commit whose answer is lost is sent again at another endpoint,
  until the patience ends; after that it is in doubt;
- `settle` writes the head again, unchanged, before it says that a commit is not stored, as `commit` does
  before it says that a session prevents it: a request that arrives later compares the earlier head, and
  fails;
- a watch first reads the journal, then follows its changes. After any interruption it continues from its last
  revision; it fails only if the journal does not go back that far;
- what a broker was given once is in all that it is given later: a catalog that lacks the newest commit that
  it has seen, because etcd was restored from an older backup, is refused, whatever was committed since;
- a member that was stopped sends nothing and ends no connection. So the guard reads the head twice per
  second, and a watch that stays behind it for one second starts again, at another endpoint.

One object per broker. Event loop only.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final
from uuid import UUID, uuid4

import structlog

from tidelog.broker.cluster import etcd_layout as layout
from tidelog.broker.cluster import store
from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.etcd_client import EtcdClient, EtcdCompacted, EtcdUnavailable
from tidelog.broker.cluster.etcd_health import EtcdHealth
from tidelog.broker.cluster.etcd_layout import Head, ImagePointer, Layout, after, key, packed, value_of
from tidelog.broker.cluster.etcd_session import EtcdSession
from tidelog.broker.cluster.facts import UnknownFact
from tidelog.broker.tasks import Tasks, kept

logger = structlog.get_logger(__name__)
_PAGE: Final = 200
"""Entries of the journal that are read at once."""
_GUARD_INTERVAL_S: Final = 0.5
_MAX_BEHIND_S: Final = 1.0
_PAUSE_S: Final = 0.1
IMAGE_AFTER_COMMITS: Final = 1_000
IMAGE_AFTER_BYTES: Final = 1 << 20
"""An image is written after so much journal, or twice as much as the image itself has, if that is more."""
KEPT_COMMITS: Final = 1_000
"""How many revisions before an image stay in the journal, for brokers that are behind."""


class _Watch:
    """Notes how far one stream of commits has come. `stale` ends the connection that it reads now."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.stale = asyncio.Event()
        self._behind_since: float | None = None

    def compare(self, newest: int) -> None:
        now = time.monotonic()
        if self.revision >= newest:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since >= _MAX_BEHIND_S:
            self._behind_since = None
            self.stale.set()


class EtcdStore:
    """Keeps the catalog in etcd, as a SharedStore."""

    is_newest = True
    """etcd answers with what most of its members have. If it was restored from an older backup, a broker
    that has seen a newer catalog does not start (`replicas.catalog_checkpoint`)."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        node_id: int,
        prefix: str = "tidelog",
        cluster_id: str | None = None,
        may_begin: bool = True,
        session_timeout_ms: int = 9_000,
        image_after_commits: int = IMAGE_AFTER_COMMITS,
        kept_commits: int = KEPT_COMMITS,
    ) -> None:
        """`cluster_id`: what a new catalog shall carry (None: a random one), and what an old one must carry.

        `may_begin`: whether there may be no catalog yet.
        """
        self._client = client
        self._node_id = node_id
        self._layout = Layout(prefix)
        self._wanted_cluster_id = cluster_id
        self._may_begin = may_begin
        self._image_after_commits = image_after_commits
        self._kept_commits = kept_commits
        self._head: Head | None = None
        """The newest that was seen."""
        self._watches: set[_Watch] = set()
        self._next_endpoint = node_id
        self._session = EtcdSession(client, self._layout, session_timeout_ms)
        self._sessions: frozenset[store.BrokerSession] = frozenset()
        self._looked_at = 0
        """The revision of etcd at which the sessions were read."""
        self._sessions_changed = asyncio.Event()
        self._guard: asyncio.Task[None] | None = None
        self._health = EtcdHealth(client)
        self._tasks = Tasks()
        self._is_lost = False
        self._is_forked = False
        """Whether etcd was last seen to lack the commit `seen`."""
        self.seen = store.SeenCommit()
        self._image_writing: asyncio.Task[None] | None = None
        self._since_image = 0
        """Bytes of the journal since the last image, as far as this broker saw it."""
        self._image_bytes = 0
        self._image_revision = 0
        self._is_closed = False

    async def load(self) -> Catalog:
        while True:
            try:
                with self._reading():
                    return await self._load()
            except EtcdCompacted:
                continue  # While it was read.

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raises StoreError for what cannot be read."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> store.StoreError:
        if isinstance(error, UnknownFact):
            return store.StoreError(
                f"the catalog below {self._layout.head} in etcd has what this release does not know: {error}."
                " A newer release wrote it: upgrade this broker too"
            )
        return store.StoreError(
            f"the catalog below {self._layout.head} in etcd is not what was written: {error!r}; restore etcd "
            "from a backup, or set another cluster.store.prefix to begin anew"
        )

    async def _load(self) -> Catalog:
        reads = [layout.get(self._layout.head), layout.get(self._layout.image)]
        answer = await self._transaction({"success": reads})
        head = layout.head_of(layout.found(answer, 0))
        if head is None:
            await self._begin()
            return await self._load()
        self._check_identity(head)
        pointer = layout.pointer_of(layout.found(answer, 1))
        at = layout.revision_in(answer)
        catalog = await self._image(head, pointer, at)
        async for commit in self._entries(pointer.revision, head.revision, at):
            for delta in commit.deltas:
                catalog.apply(delta)
        await self._require_seen()
        self.seen = max(self.seen, store.SeenCommit(head.revision, head.nonce))
        self._saw(head)
        self._may_begin = False
        return catalog

    async def holds(self, seen: store.SeenCommit) -> bool:
        entry = layout.get_range(self._layout.first_from(seen.revision))
        answer = await self._transaction({"success": [layout.get(self._layout.head), entry]})
        with self._reading():
            head, entries = layout.head_of(layout.found(answer, 0)), layout.found(answer, 1)
            return layout.has_commit(head, layout.commit_of(entries[0]) if entries else None, seen)

    async def _require_seen(self) -> None:
        self._is_forked = not await self.holds(self.seen)
        if self._is_forked:
            raise self._forked()

    def _forked(self) -> store.StoreError:
        return store.StoreError(
            f"the catalog below {self._layout.head} in etcd lacks revision {self.seen.revision} as this"
            " broker has seen it: an older store was put in its place; put the newest one back"
        )

    async def _image(self, head: Head, pointer: ImagePointer, at: int) -> Catalog:
        self._since_image, self._image_revision = 0, pointer.revision
        if not pointer.chunks:
            return Catalog(head.cluster_id)
        chunks = []
        for number in range(pointer.chunks):
            name = key(self._layout.chunk(pointer.image_id, number))
            answer = await self._client.call("/v3/kv/range", {"key": name, "revision": str(at)})
            chunks += [value_of(entry) for entry in answer.get("kvs", ())]
        self._image_bytes = sum(map(len, chunks))
        catalog = layout.image_of(chunks)
        if (catalog.cluster_id, catalog.revision) != (head.cluster_id, pointer.revision):
            raise ValueError(f"the image is of {catalog.cluster_id} at {catalog.revision}")
        return catalog

    async def _begin(self) -> None:
        if not self._may_begin:
            raise store.StoreError(
                f"etcd has no catalog below {self._layout.head}, and the data folder was used before; check "
                "cluster.store and cluster.store.prefix, or restore etcd from a backup"
            )
        await self._transaction(self._layout.new(self._wanted_cluster_id or store.new_cluster_id()))

    async def held_cluster_id(self) -> str | None:
        """Of which cluster there is a catalog; None if there is none."""
        answer = await self._transaction({"success": [layout.get(self._layout.head)]})
        with self._reading():
            head = layout.head_of(layout.found(answer, 0))
        return None if head is None else head.cluster_id

    async def begin_with(self, catalog: Catalog) -> None:
        """Store a whole catalog where none is. Raises StoreError if one is; nothing is changed then."""
        image, _ = await self._put_chunks(catalog)
        answer = await self._transaction(self._layout.begun(catalog.cluster_id, image))
        if not answer.get("succeeded") and await self.held_cluster_id() != catalog.cluster_id:
            raise store.StoreError(f"etcd has a catalog below {self._layout.head} already")

    async def _put_chunks(self, catalog: Catalog) -> tuple[ImagePointer, int]:
        """An image that nothing names yet, and its bytes."""
        chunks = layout.chunks_of(catalog)
        image = ImagePointer(catalog.revision, uuid4().hex, len(chunks), 0)
        for number, chunk in enumerate(chunks):
            name = key(self._layout.chunk(image.image_id, number))
            await self._client.call("/v3/kv/put", {"key": name, "value": packed(chunk)})
        return image, sum(map(len, chunks))

    def _check_identity(self, head: Head) -> None:
        if self._wanted_cluster_id not in (None, head.cluster_id):
            raise store.StoreError(
                f"the catalog below {self._layout.head} in etcd is of cluster.id {head.cluster_id}, the "
                f"configuration says {self._wanted_cluster_id}; change it or set another cluster.store.prefix"
            )

    async def _entries(self, revision: int, newest: int, at: int) -> AsyncIterator[store.Commit]:
        """The commits from `revision` to `newest`, as etcd had them at its revision `at`.

        Raises StoreError if they are not all kept, EtcdCompacted.
        """
        while revision < newest:
            wanted = {**self._layout.entries_after(revision), "limit": str(_PAGE), "revision": str(at)}
            answer = await self._client.call("/v3/kv/range", wanted)
            entries = answer.get("kvs", ())
            if not entries:
                raise self._gap(revision, newest)
            for entry in entries:
                commit = self._commit_of(entry)
                if commit.revision - len(commit.deltas) != revision:
                    raise self._gap(revision, commit.revision)
                revision = commit.revision
                yield commit

    def _commit_of(self, entry: Mapping[str, Any]) -> store.Commit:
        self._since_image += len(entry["value"])
        return layout.commit_of(entry)

    @staticmethod
    def _gap(revision: int, newest: int) -> store.StoreError:
        return store.StoreError(
            f"the commit after revision {revision} is no longer kept, the store is at"
            f" {newest}; load the catalog again"
        )

    async def _transaction(self, transaction: Mapping[str, object]) -> Any:
        return await self._client.call("/v3/kv/txn", transaction)

    def _saw(self, head: Head) -> None:
        if self._head is None or head.changed_at > self._head.changed_at:
            self._head = head

    async def _read_head(self) -> tuple[Head, bytes]:
        """The head, and the nonce of this broker's last commit."""
        reads = [layout.get(self._layout.head), layout.get(self._layout.writer(self._node_id))]
        return self._head_and_nonce(await self._transaction({"success": reads}))

    def _head_and_nonce(self, answer: Mapping[str, Any]) -> tuple[Head, bytes]:
        with self._reading():
            head, writer = layout.head_of(layout.found(answer, 0)), layout.found(answer, 1)
        if head is None:
            raise store.StoreError(f"{self._layout.head} in etcd is gone; restore etcd from a backup")
        self._saw(head)
        return head, value_of(writer[0]) if writer else b""

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        nonce = nonce or uuid4()
        head = self._head
        if head is None or head.revision < expected_revision:
            head, _ = await self._read_head()
        while True:
            newest_revision = max(head.revision, self.seen.revision)
            if newest_revision != expected_revision:
                raise store.StoreConflict(
                    f"expected revision {expected_revision} in the store, got {newest_revision}"
                )
            if not head.may_follow(self.seen):
                raise self._forked()
            transaction = self._layout.commit(head, deltas, self._node_id, nonce, without_session)
            answer = await self._transaction(transaction)
            if answer.get("succeeded"):
                revision = expected_revision + len(deltas)
                self._saw(Head(head.cluster_id, revision, layout.revision_in(answer), nonce.hex))
                self._begin_image(revision)
                return
            newest, last_nonce = self._head_and_nonce(answer)
            if newest == head:
                # An earlier sending may be on its way, and would be stored once the session has ended.
                if (await self._transaction(self._layout.fence(head))).get("succeeded"):
                    raise store.SessionLives(f"broker {without_session} has a session")
                newest, last_nonce = await self._read_head()
            if last_nonce == nonce.hex.encode():
                return  # The first time it was sent it got no answer.
            head = newest

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        while True:
            head, last_nonce = await self._read_head()
            if last_nonce == nonce.hex.encode():
                return True
            if head.revision != expected_revision:
                return False
            if (await self._transaction(self._layout.fence(head))).get("succeeded"):
                return False

    async def watch(self, revision: int) -> AsyncIterator[store.Commit]:
        watch = _Watch(revision)
        self._watches.add(watch)
        self._begin_guard()
        try:
            while not self._is_closed:
                try:
                    async with aclosing(self._followed(watch)) as commits:
                        async for commit in commits:
                            watch.revision = commit.revision
                            self.seen = max(self.seen, store.SeenCommit(commit.revision, commit.nonce))
                            yield commit
                except (EtcdUnavailable, EtcdCompacted):
                    await asyncio.sleep(_PAUSE_S)
                except (ValueError, KeyError, TypeError) as error:
                    raise self._damaged(error) from error
        finally:
            self._watches.discard(watch)

    async def _followed(self, watch: _Watch) -> AsyncGenerator[store.Commit, None]:
        """Commits after the watch's revision, until it is stale. Raises EtcdUnavailable, EtcdCompacted."""
        watch.stale.clear()
        answer = await self._transaction({"success": [layout.get(self._layout.head)]})
        head, at = layout.head_of(layout.found(answer, 0)), layout.revision_in(answer)
        if head is None or head.revision < watch.revision:
            raise self._damaged(ValueError(f"it was at revision {watch.revision}, and is before that now"))
        await self._require_seen()
        self._saw(head)
        revision = watch.revision
        async for commit in self._entries(revision, head.revision, at):
            revision = commit.revision
            yield commit
        request = {
            "key": key(self._layout.journal),
            "range_end": after(self._layout.journal),
            "start_revision": str(at + 1),
            "filters": ["NODELETE"],
        }
        self._next_endpoint += 1
        body = {"create_request": request}
        async with aclosing(self._client.stream("/v3/watch", body, self._next_endpoint)) as messages:
            while (message := await self._next_message(messages, watch)) is not None:
                if int(message.get("compact_revision", 0)):
                    raise EtcdCompacted
                if message.get("canceled"):
                    raise EtcdUnavailable(f"the watch was cancelled: {message.get('cancel_reason', '')}")
                for event in message.get("events", ()):
                    commit = self._commit_of(event["kv"])
                    if commit.revision - len(commit.deltas) != revision:
                        return
                    revision = commit.revision
                    yield commit

    async def _next_message(
        self, messages: AsyncIterator[Mapping[str, Any]], watch: _Watch
    ) -> Mapping[str, Any] | None:
        """None once the watch is stale, or the store closed."""
        following = asyncio.ensure_future(anext(messages, None))
        stale = asyncio.ensure_future(watch.stale.wait())
        try:
            await asyncio.wait([following, stale], return_when=asyncio.FIRST_COMPLETED)
            return following.result() if following.done() else None
        finally:
            stale.cancel()
            following.cancel()
            await asyncio.wait([following])

    def _begin_guard(self) -> None:
        if self._guard is None and not self._is_closed:
            self._guard = self._tasks.task(kept(self._keep_guard))
            self._tasks.begin(kept(self._health.run))

    @property
    def view(self) -> store.StoreView:
        return store.StoreView(self._health.members, self._is_lost or self._is_forked)

    async def _keep_guard(self) -> None:
        while True:
            try:
                await self._look()
            except store.StoreError as error:
                logger.warning(
                    "cluster_store_not_guarded", error=str(error), advice="check that etcd answers"
                )
            await asyncio.sleep(_GUARD_INTERVAL_S)

    async def _look(self) -> None:
        """Compare the watches with the head, and read the sessions."""
        sessions = {"key": key(self._layout.sessions), "range_end": after(self._layout.sessions)}
        reads = [layout.get(self._layout.head), layout.get_range(sessions)]
        before, seen = self._head, self.seen
        answer = await self._client.call("/v3/kv/txn", {"success": reads}, timeout_s=2 * _GUARD_INTERVAL_S)
        with self._reading():
            head = layout.head_of(layout.found(answer, 0))
            living = frozenset(map(layout.session_of, layout.found(answer, 1)))
        self._is_lost = before is not None and (
            head is None or head.cluster_id != before.cluster_id or not head.may_follow(seen)
        )
        if head is not None:
            self._saw(head)
            for watch in self._watches:
                watch.compare(head.revision)
        looked_at = layout.revision_in(answer)
        if looked_at >= self._looked_at and living != self._sessions:
            self._sessions = living
            changed, self._sessions_changed = self._sessions_changed, asyncio.Event()
            changed.set()
        self._looked_at = max(looked_at, self._looked_at)

    @property
    def session_valid_until_ms(self) -> float:
        return self._session.valid_until_ms

    @property
    def session_revision(self) -> int:
        return self._session.revision

    async def begin_session(self, session: store.BrokerSession, ended: UUID | None = None) -> None:
        await self._session.begin(session, ended)

    async def end_session(self) -> None:
        await self._session.end()

    async def watch_sessions(self) -> AsyncIterator[frozenset[store.BrokerSession]]:
        await self._look()
        self._begin_guard()
        while not self._is_closed:
            changed, living = self._sessions_changed, self._sessions
            yield living
            await changed.wait()

    def _begin_image(self, revision: int) -> None:
        is_due = revision - self._image_revision >= self._image_after_commits or self._since_image >= max(
            IMAGE_AFTER_BYTES, 2 * self._image_bytes
        )
        if is_due and (self._image_writing is None or self._image_writing.done()):
            self._image_writing = self._tasks.task(self._write_image())

    async def _write_image(self) -> None:
        try:
            await self._replace_image()
        except (store.StoreError, OSError) as error:
            advice = "nothing is lost, the journal has it; a later commit writes the image"
            logger.warning("cluster_image_not_written", error=str(error), advice=advice)

    async def _replace_image(self) -> None:
        answer = await self._transaction({"success": [layout.get(self._layout.image)]})
        before = layout.pointer_of(layout.found(answer, 0))
        catalog = await self.load()
        if catalog.revision - before.revision < self._image_after_commits // 2:
            return  # Another broker wrote one.
        image, size_bytes = await self._put_chunks(catalog)
        answer = await self._transaction(self._layout.use_image(before, image, self._kept_commits))
        if answer.get("succeeded"):
            self._since_image, self._image_revision = 0, image.revision
            self._image_bytes = size_bytes
        elif layout.pointer_of(layout.found(answer, 0)).image_id != image.image_id:
            unused = self._layout.without_chunks(image.image_id)
            await self._client.call("/v3/kv/deleterange", unused)

    async def close(self) -> None:
        self._is_closed = True
        for watch in self._watches:
            watch.stale.set()
        self._sessions_changed.set()
        await self._tasks.cancel()
        try:
            await self._session.end()
        finally:
            await self._client.close()
