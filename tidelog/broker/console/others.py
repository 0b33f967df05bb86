"""The way from the console of one broker to those of the others, and back.

Owns `Others`, which asks by AskConsole, in the name of the caller, over connections on which nothing else
waits; and `TakenStreams`, the streams from which other brokers take values.

Invariants: a broker that does not answer in time is named, and the answers of the others count; a stream is
taken value by value, so a slow visitor gets fewer, and it ends soon after its reader stops.

Event loop only.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.console.caller import Caller
from tidelog.broker.coordinator.shards import partition_of
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey

_SECONDS: Final = 4.0
"""How long a broker may take to answer; it then counts as one that does not."""
_SILENT_SECONDS: Final = 10.0
"""How long a broker that did not answer is only asked for changes: so one page waits for it once."""
_CHANGE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.25
"""Between two looks whether a stream of another broker has a value."""
_IDLE_SECONDS: Final = 15.0
"""After which a stream without a reader ends."""
_MOST_STREAMS: Final = 128
_LANE: Final = "console"
Values: TypeAlias = AsyncGenerator[Any, None]
"""Of a stream."""
_NO_STREAM: Final = -1
_NO_LIMIT: Final = -1


def leader(services: Services, topic: str, partition: int) -> int:
    """The broker that leads a partition; this one also if there is none, because it says why.

    Raises ApiError(LEADER_NOT_AVAILABLE).
    """
    assigned = services.catalog.assigned(topic, partition)
    if assigned is None:
        return services.node_id
    leader_id = assigned.leader_id
    if leader_id == NO_LEADER or not services.is_live(leader_id):
        where = ", ".join(map(str, assigned.replicas))
        message = f"{topic}-{partition} is on broker {where}, which is gone"
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, message)
    return leader_id


def coordinator(services: Services, topic: str, key: str) -> int:
    """The broker that coordinates a group or a transactional id, whose state is in `topic`; this one while
    there is no such topic. Raises ApiError(LEADER_NOT_AVAILABLE)."""
    known = services.catalog.topic(topic)
    if known is None:
        return services.node_id
    return leader(services, topic, partition_of(key, len(known.partitions)))


class AskedRoute(Protocol):
    """What is to be known of a route to ask another broker for it (`route.ApiRoute`)."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def is_change(self) -> bool: ...
    @property
    def is_of_lines(self) -> bool: ...


class Others:
    """The other brokers, as the console of one broker has them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._silent_until: dict[int, float] = {}

    @property
    def is_alone(self) -> bool:
        return len(self._services.catalog.brokers) < 2

    @property
    def node_ids(self) -> list[int]:
        return [each for each in self._services.catalog.brokers if each != self._services.node_id]

    async def ask_all(
        self, caller: Caller, route: AskedRoute, parameters: Struct, limit: int = _NO_LIMIT
    ) -> tuple[dict[int, Any], list[int]]:
        """What each other broker answers, and the ids of those that do not. Raises ApiError for a refusal."""
        node_ids = self.node_ids
        live = [each for each in node_ids if self._services.is_live(each)]
        asked = (self.ask(each, caller, route, parameters, limit) for each in live)
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = {}
        for node_id, answer in zip(live, found, strict=True):
            if not isinstance(answer, BaseException):
                answers[node_id] = answer
            elif not isinstance(answer, ApiError) or not (
                answer.code.retriable or answer.code == ErrorCode.UNSUPPORTED_VERSION
            ):
                raise answer
        return answers, sorted(set(node_ids) - answers.keys())

    async def ask(
        self, node_id: int, caller: Caller, route: AskedRoute, parameters: Struct, limit: int = _NO_LIMIT
    ) -> Any:
        """What one broker answers. Raises ApiError: NETWORK_EXCEPTION where it does not."""
        answered = await self._call(node_id, caller, route, parameters, limit)
        return json.loads(answered.answer)

    async def stream(self, node_id: int, caller: Caller, route: AskedRoute, parameters: Struct) -> Values:
        """The values of another broker's stream. Raises ApiError before the first one if it is refused."""
        first = await self._call(node_id, caller, route, parameters)

        async def values() -> Values:
            answered = first
            while True:
                if answered.answer:
                    yield answered.answer if route.is_of_lines else json.loads(answered.answer)
                elif answered.stream_id != _NO_STREAM:
                    await asyncio.sleep(_PAUSE_SECONDS)
                if answered.stream_id == _NO_STREAM:
                    return
                answered = await self._call(node_id, caller, route, parameters, stream_id=answered.stream_id)

        return values()

    async def _call(
        self,
        node_id: int,
        caller: Caller,
        route: AskedRoute,
        parameters: Struct,
        limit: int = _NO_LIMIT,
        stream_id: int = _NO_STREAM,
    ) -> types.AskConsoleResponse:
        asked: DictOf[types.AskConsoleRequest] = {
            "user": caller.user,
            "host": caller.host,
            "method": route.method,
            "path": route.path,
            "parameters": msgspec.json.encode(parameters),
            "limit": limit,
            "stream_id": stream_id,
        }
        seconds = _CHANGE_SECONDS if route.is_change else _SECONDS
        now = asyncio.get_running_loop().time()
        message = f"broker {node_id} does not answer within {seconds:.0f} s"
        if not route.is_change and self._silent_until.get(node_id, now) > now:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, message)
        try:
            async with asyncio.timeout(seconds):
                answered: types.AskConsoleResponse = await self._services.peers.call(
                    node_id, ApiKey.ASK_CONSOLE, asked, _LANE
                )
        except TimeoutError:
            self._silent_until[node_id] = asyncio.get_running_loop().time() + _SILENT_SECONDS
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, message) from None
        self._silent_until.pop(node_id, None)
        code = error_code(answered.error_code)
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and answered.error_message == code.message:
            # The visitor has the right here, so it is this broker that is refused.
            raise self._services.peers.not_authorized(node_id, ApiKey.ASK_CONSOLE)
        if code:
            raise ApiError(code, answered.error_message or code.message)
        return answered


async def all_of(streams: Sequence[Values]) -> Values:
    """The values of all of them, as they come. It ends, or raises, with the first that does."""
    waiting = {asyncio.ensure_future(anext(each)): each for each in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for following in done:
                stream = waiting.pop(following)
                waiting[asyncio.ensure_future(anext(stream))] = stream
                yield following.result()
    except StopAsyncIteration:
        return
    finally:
        for following in waiting:
            following.cancel()
        if waiting:
            await asyncio.wait(waiting)
        for stream in streams:
            await stream.aclose()


class _Taken(NamedTuple):
    values: Values
    following: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class TakenStreams:
    """The streams of this broker that others take value by value."""

    def __init__(self) -> None:
        self._streams: dict[int, _Taken] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def begin(self, values: Values) -> int:
        """The id by which they are taken. Raises ApiError if too many are."""
        if len(self._streams) >= _MOST_STREAMS:
            message = f"{_MOST_STREAMS} streams of this broker are followed at others: close a page"
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        stream_id = secrets.randbits(62)
        self._expect(stream_id, values)
        return stream_id

    def _expect(self, stream_id: int, values: Values, following: asyncio.Future[Any] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end, stream_id)
        following = following or asyncio.ensure_future(anext(values, _END))
        self._streams[stream_id] = _Taken(values, following, timer)

    async def take(self, stream_id: int) -> tuple[Any, int]:
        """The next value, None if there is none yet, and the id of the rest, -1 after the last one.

        Raises ApiError, also as the stream does.
        """
        taken = self._streams.pop(stream_id, None)
        if taken is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the stream has ended: load the page again")
        taken.timer.cancel()
        await asyncio.wait((taken.following,), timeout=0.01)
        if not taken.following.done():
            self._expect(stream_id, taken.values, taken.following)
            return None, stream_id
        value = taken.following.result()
        if value is _END:
            return None, _NO_STREAM
        self._expect(stream_id, taken.values)
        return value, stream_id

    def _end(self, stream_id: int) -> None:
        task = asyncio.get_running_loop().create_task(_closed(self._streams.pop(stream_id)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def stop(self) -> None:
        """End all of them soon."""
        for stream_id, taken in list(self._streams.items()):
            taken.timer.cancel()
            self._end(stream_id)


_END: Final = object()


async def _closed(taken: _Taken) -> None:
    taken.following.cancel()
    await asyncio.wait((taken.following,))
    if not taken.following.cancelled():
        taken.following.exception()  # Retrieved: it has no reader any more.
    await taken.values.aclose()
