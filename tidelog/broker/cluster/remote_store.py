"""The cluster store of another process of this machine, over its Unix socket (`store_server`).

Owns the connections: one for calls, one for each watch, one for the session, which lives as long as it.

Invariants: calls go one after the other. A commit whose connection ends before its answer raises, and
`settle` returns its outcome; every other call is repeated. A restart of the store is awaited for
`PATIENCE_SECONDS`.

Event loop only.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.facts import delta_fields, delta_of, list_of, uuid_of, whole_number
from tidelog.broker.cluster.image_lines import read_image
from tidelog.broker.cluster.store import BrokerSession, Commit, SessionHeld, StoreError
from tidelog.broker.cluster.store_frames import VERSION, BadFrame, raise_error, read_frame, write_frame
from tidelog.broker.cluster.unix_sockets import connect_to
from tidelog.broker.tasks import Tasks, kept
from tidelog.protocol.steps import finish

PATIENCE_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.02
_SESSION_SECONDS: Final = 5.0
_T = TypeVar("_T")


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> Mapping[str, Any]:
        """The next frame. Raises what it says, and OSError at the end of the connection."""
        try:
            fields = await read_frame(self.reader)
        except BadFrame as error:
            raise StoreError(f"the store's process does not follow the protocol: {error}") from error
        if fields is None:
            raise ConnectionResetError("the store's process ended the connection")
        raise_error(fields)
        return fields


class RemoteStore:
    """Uses the SharedStore of another process, over its socket."""

    def __init__(self, path: Path) -> None:
        """`path` is that of the store's socket."""
        self.is_newest = True
        self._path = path
        self._client = uuid.uuid4().hex
        self._lock = asyncio.Lock()
        self._calls: _Connection | None = None
        self._session: _Connection | None = None
        self._session_revision = 0
        self._keeping_session = Tasks()
        self._open: set[_Connection] = set()
        self._work = Tasks()
        """Calls that are in progress."""
        self._is_closed = False

    async def load(self) -> Catalog:
        return await self._to_the_end(self._load, is_repeatable=True)

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        request = {
            "call": "commit",
            "deltas": [delta_fields(delta) for delta in deltas],
            "revision": expected_revision,
            "nonce": None if nonce is None else nonce.hex,
            "without_session": without_session,
        }
        await self._to_the_end(partial(self._asked, request), is_repeatable=False)

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        request = {"call": "settle", "nonce": nonce.hex, "revision": expected_revision}
        return bool((await self._to_the_end(partial(self._asked, request), is_repeatable=True))["is_stored"])

    async def watch(self, revision: int) -> AsyncIterator[Commit]:
        connection = await self._connect({"wants": "commits", "revision": revision})
        async for fields in self._stream(connection):
            deltas = tuple(map(delta_of, list_of(fields["deltas"])))
            yield Commit(whole_number(fields["revision"]), deltas)

    async def watch_sessions(self) -> AsyncIterator[frozenset[BrokerSession]]:
        async for fields in self._stream(await self._connect({"wants": "sessions"})):
            pairs = map(list_of, list_of(fields["sessions"]))
            yield frozenset(
                BrokerSession(whole_number(node_id), uuid_of(incarnation)) for node_id, incarnation in pairs
            )

    @property
    def session_valid_until_ms(self) -> float:
        """The session ends with its connection, so it is valid as long as this is open."""
        return time.monotonic() * 1000 + _SESSION_SECONDS * 1000 if self._session is not None else 0.0

    async def begin_session(self, session: BrokerSession, ended: UUID | None = None) -> None:
        """A session ends with the connection of its process, so none of `ended` is left."""
        self._session = await self._connected_session(session)
        self._keeping_session.begin(kept(self._keep_session, session))

    @property
    def session_revision(self) -> int:
        return self._session_revision

    async def end_session(self) -> None:
        await self._keeping_session.cancel()
        held, self._session = self._session, None
        if held is not None:
            with suppress(OSError, StoreError):
                await write_frame(held.writer, {"call": "end"})
                await held.answer()
            self._drop(held)

    async def _connected_session(self, session: BrokerSession) -> _Connection:
        """A connection that holds the session. Raises SessionHeld, OSError, StoreError."""
        connection = await self._connect(
            {"wants": "session", "node_id": session.node_id, "incarnation": session.incarnation.hex}
        )
        try:
            await connection.answer()
        except BaseException:
            self._drop(connection)
            raise
        return connection

    async def _keep_session(self, session: BrokerSession) -> None:
        while True:
            held = self._session
            if held is not None:
                with suppress(OSError):
                    await held.reader.read(1)  # Returns at the end of the connection; nothing else is sent.
                self._drop(held)
                self._session = None
            try:
                await self._begin_again(session)
            except (OSError, StoreError, SessionHeld):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _begin_again(self, session: BrokerSession) -> None:
        begun = await self._connected_session(session)
        try:
            self._session_revision = (await self.load()).revision
        except BaseException:
            self._drop(begun)
            raise
        self._session = begun

    async def _stream(self, connection: _Connection) -> AsyncIterator[Mapping[str, Any]]:
        """The frames of a watch, until the store is closed. Raises StoreError, OSError."""
        try:
            while not self._is_closed:
                yield await connection.answer()
        except OSError:
            if not self._is_closed:
                raise
        finally:
            self._drop(connection)

    async def _load(self) -> Catalog:
        connection = await self._caller()
        await write_frame(connection.writer, {"call": "load"})
        fields = await connection.answer()
        first = fields["first"]
        lines: list[Mapping[str, Any]] = []
        while len(lines) < whole_number(first["topics"]) + whole_number(first["users"]):
            lines += list_of((await connection.answer())["lines"])
        self.is_newest = bool(fields["is_newest"])
        catalog: Catalog = finish(read_image(first, iter(lines)))
        return catalog

    async def _asked(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        connection = await self._caller()
        await write_frame(connection.writer, request)
        return await connection.answer()

    async def _caller(self) -> _Connection:
        if self._calls is not None and self._calls.reader.at_eof():
            self._drop(self._calls)
            self._calls = None
        if self._calls is None:
            self._calls = await self._connect({"wants": "calls", "client": self._client})
        return self._calls

    async def _to_the_end(self, call: Callable[[], Coroutine[Any, Any, _T]], *, is_repeatable: bool) -> _T:
        """The result of a call, which continues if its caller is cancelled, so that answers fit their
        requests."""
        return await asyncio.shield(self._work.task(self._in_turn(call, is_repeatable)))

    async def _in_turn(self, call: Callable[[], Coroutine[Any, Any, _T]], is_repeatable: bool) -> _T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        async with self._lock:
            while True:
                try:
                    return await call()
                except ConnectionError:
                    held, self._calls = self._calls, None
                    if held is not None:
                        self._drop(held)
                    if not is_repeatable or self._is_closed or time.monotonic() > deadline:
                        raise

    async def _connect(self, greeting: Mapping[str, object]) -> _Connection:
        """A new connection. Raises OSError if no process listens for `PATIENCE_SECONDS`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._is_closed:
                raise ConnectionAbortedError("the cluster store is closed")
            try:
                connected = connect_to(self._path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)
        connection = _Connection(*await asyncio.open_unix_connection(sock=connected))
        self._open.add(connection)
        await write_frame(connection.writer, {"version": VERSION, **greeting})
        return connection

    def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.writer.close()

    async def close(self) -> None:
        await self.end_session()
        await self._work.ended()
        self._is_closed = True
        for connection in list(self._open):
            self._drop(connection)
