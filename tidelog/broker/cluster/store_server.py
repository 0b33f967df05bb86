"""A cluster store that other processes of this machine use over a Unix socket (`remote_store`).

Owns the connections. The session of a broker ends with its connection. Serves any ClusterStore of one process
(`store_sharing`).

Invariants:
- what a client sends is bounded (`store_frames`) and checked; one that breaks the protocol is disconnected,
  without an effect on others;
- the requests of a client are served one after the other. A new connection of a client ends its earlier one
  first, so no request arrives after the answer that it was not executed.

Event loop only.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from tidelog.broker.cluster import store_frames
from tidelog.broker.cluster.facts import delta_fields, delta_of, list_of, uuid_of, whole_number
from tidelog.broker.cluster.image_lines import first_line, other_lines
from tidelog.broker.cluster.store import BrokerSession, StoreConflict, StoreError
from tidelog.broker.cluster.store_sharing import StoreSharing

_BACKLOG: Final = 1024
_GREETING_SECONDS: Final = 30.0
_MOST_CONNECTIONS: Final = 1024
logger = structlog.get_logger(__name__)


class StoreServer:
    """Serves one store on one listening socket."""

    def __init__(self, sharing: StoreSharing) -> None:
        self._sharing = sharing
        self._store = sharing.member()
        self._callers: dict[str, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serve on a bound socket. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._connected, sock=listening, backlog=_BACKLOG)

    async def none_left(self) -> None:
        """Return when no client is connected."""
        await self._none_left.wait()

    async def close(self) -> None:
        """End all connections. The store stays open."""
        if self._server is not None:
            self._server.close()
        for each in list(self._connections):
            each.cancel()
        await self._none_left.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        self._none_left.clear()
        try:
            await self._serve(reader, writer, task)
        except (store_frames.BadFrame, ValueError, KeyError, TypeError, TimeoutError) as error:
            logger.warning(
                "store_connection_refused",
                error=repr(error),
                advice="another process sent an unexpected message; nothing was changed",
            )
        except (OSError, asyncio.CancelledError):
            pass  # The client is gone, or this server ends.
        finally:
            self._connections.discard(task)
            for client in [client for client, serving in self._callers.items() if serving is task]:
                del self._callers[client]
            writer.close()
            if not self._connections:
                self._none_left.set()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        async with asyncio.timeout(_GREETING_SECONDS):
            greeting = await store_frames.read_frame(reader)
        if greeting is None:
            return
        if greeting["version"] != store_frames.VERSION:
            message = f"expected version {store_frames.VERSION} of the protocol, got {greeting['version']!r}"
            await store_frames.write_frame(writer, store_frames.error_fields(StoreError(message)))
            return
        match greeting["wants"]:
            case "calls":
                await self._end_earlier(str(greeting["client"]), task)
                while (request := await store_frames.read_frame(reader)) is not None:
                    await self._answer(request, writer)
            case "commits":
                await self._until_closed(
                    reader, self._send_commits(whole_number(greeting["revision"]), writer)
                )
            case "sessions":
                await self._until_closed(reader, self._send_sessions(writer))
            case "session":
                session = BrokerSession(whole_number(greeting["node_id"]), uuid_of(greeting["incarnation"]))
                await self._hold_session(session, reader, writer)
            case other:
                raise store_frames.BadFrame(f"a client wants {other!r}")

    async def _end_earlier(self, client: str, task: asyncio.Task[None] | None) -> None:
        """End what served a client until now; `task` does from now on."""
        earlier = self._callers.pop(client, None)
        if task is not None:
            self._callers[client] = task
        if earlier is not None:
            earlier.cancel()
            await asyncio.wait([earlier])

    async def _answer(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            match request["call"]:
                case "load":
                    await self._send_image(writer)
                    return
                case "commit":
                    answer: dict[str, object] = await self._commit(request)
                case "settle":
                    revision = whole_number(request["revision"])
                    answer = {"is_stored": await self._store.settle(uuid_of(request["nonce"]), revision)}
                case other:
                    raise store_frames.BadFrame(f"a client calls {other!r}")
        except (StoreError, StoreConflict, OSError) as error:
            answer = store_frames.error_fields(error)
        await store_frames.write_frame(writer, answer)

    async def _send_image(self, writer: asyncio.StreamWriter) -> None:
        catalog = await self._store.load()
        lines = other_lines(catalog)
        await store_frames.write_frame(
            writer, {"first": first_line(catalog), "is_newest": self._store.is_newest}
        )
        for start in range(0, len(lines), store_frames.LINES_PER_FRAME):
            await store_frames.write_frame(
                writer, {"lines": lines[start : start + store_frames.LINES_PER_FRAME]}
            )

    async def _commit(self, request: Mapping[str, Any]) -> dict[str, object]:
        deltas = [delta_of(fields) for fields in list_of(request["deltas"])]
        revision = whole_number(request["revision"])
        nonce = None if request["nonce"] is None else uuid_of(request["nonce"])
        without = None if request["without_session"] is None else whole_number(request["without_session"])
        await self._store.commit(deltas, revision, nonce=nonce, without_session=without)
        return {}

    async def _send_commits(self, revision: int, writer: asyncio.StreamWriter) -> None:
        try:
            async for commit in self._store.watch(revision):
                deltas = [delta_fields(delta) for delta in commit.deltas]
                await store_frames.write_frame(writer, {"revision": commit.revision, "deltas": deltas})
        except StoreError as error:
            await store_frames.write_frame(writer, store_frames.error_fields(error))

    async def _send_sessions(self, writer: asyncio.StreamWriter) -> None:
        async for living in self._sharing.watch():
            sessions = [[each.node_id, each.incarnation.hex] for each in living]
            await store_frames.write_frame(writer, {"sessions": sessions})

    async def _hold_session(
        self, session: BrokerSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._sharing.sessions.get(session.node_id) == session:
            # Its earlier connection has ended, which is not noticed yet.
            await self._end_earlier(session.incarnation.hex, None)
        try:
            self._sharing.begin(session)
        except StoreError as error:
            await store_frames.write_frame(writer, store_frames.error_fields(error))
            return
        await self._end_earlier(session.incarnation.hex, asyncio.current_task())
        try:
            await store_frames.write_frame(writer, {})
            await store_frames.read_frame(reader)
        finally:
            self._sharing.end(session)
        await store_frames.write_frame(writer, {})

    @staticmethod
    async def _until_closed(reader: asyncio.StreamReader, sending: Any) -> None:
        """Send until the client ends the connection, which it does by nothing else."""
        sender = asyncio.ensure_future(sending)
        end = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((sender, end), return_when=asyncio.FIRST_COMPLETED)
            if sender.done():
                sender.result()
        finally:
            for each in (sender, end):
                each.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.gather(sender, end, return_exceptions=True)
