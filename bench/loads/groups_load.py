"""Many connections, partitions and groups on one server.

At `size` 100: topics of 100 partitions each, 10,000 in all; 1,000 connections; 200 groups of five members
that commit ten offsets at a time; a group of 100 members that all join again. All counts follow the size.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Iterable, Mapping
from statistics import median
from struct import Struct
from typing import Any

from bench.targets.process import cpu_seconds, resident_bytes
from bench.wire import HOST, WireError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.schema import ApiKey, decode_response, encode_request

PARTITIONS_A_TOPIC = 100
OFFSETS_A_COMMIT = 10
_COMMIT_S = 3.0
_REBALANCES = 5
_HEARTBEAT_S = 0.1
_PATIENCE_MS = 600_000
"""Once a group is complete, its members send no heartbeats."""
_SIZE = Struct(">i")
_RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Link(asyncio.Protocol):
    """One connection; answers come in the order of the requests."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: list[tuple[asyncio.Future[Any], ApiKey, int]] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        for answered, api_key, _ in self._waiting:
            if not answered.done():
                answered.set_exception(WireError(f"{api_key.name}: the server hung up"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _SIZE.size and len(received) >= (end := 4 + _SIZE.unpack_from(received)[0]):
            frame = bytes(received[_SIZE.size : end])
            del received[:end]
            answered, api_key, version = self._waiting.pop(0)
            _, position = decode_response_header(api_key, version, frame)
            if not answered.done():  # Another request failed, and the load ends.
                answered.set_result(decode_response(api_key, version, frame[position:]))

    def ask(self, api_key: ApiKey, version: int, values: Mapping[str, object]) -> Awaitable[Any]:
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append((answered, api_key, version))
        body = encode_request(api_key, version, values)
        self.transport.write(b"".join(encode_request_frame(api_key, version, 1, "bench", body)))
        return answered


class Gathering:
    """Which of a group's members have joined. It is complete once all have, in one generation."""

    def __init__(self, size: int) -> None:
        self.complete = asyncio.Event()
        self._size = size
        self._joined: set[Member] = set()

    def add(self, member: "Member") -> None:
        self._joined.add(member)
        if len(self._joined) == self._size:
            self.complete.set()

    def remove(self, member: "Member") -> None:
        self._joined.discard(member)


class Member:
    """A member of a group of the classic protocol. Each join says something new, so that all have to join."""

    def __init__(self, link: Link, group_id: str) -> None:
        self._link = link
        self._named: dict[str, object] = {"group_id": group_id, "member_id": ""}
        self._generation = -1
        self._joins = 0

    async def join(self, gathering: Gathering) -> None:
        """Return when all members have an assignment of the newest generation."""
        while not gathering.complete.is_set():
            code = await self._join_once()
            if code == ErrorCode.NONE:
                gathering.add(self)
                code = await self._beat_until(gathering)
            if code != ErrorCode.NONE:
                _expect(code, ErrorCode.REBALANCE_IN_PROGRESS)

    async def _beat_until(self, gathering: Gathering) -> int:
        """Wait for the other members; REBALANCE_IN_PROGRESS if one of them came later."""
        while not gathering.complete.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gathering.complete.wait(), _HEARTBEAT_S)
                break
            values = {**self._named, "generation_id": self._generation}
            code = int((await self._link.ask(ApiKey.HEARTBEAT, 3, values)).error_code)
            if code and not gathering.complete.is_set():
                gathering.remove(self)
                return code
        return int(ErrorCode.NONE)

    async def _join_once(self) -> int:
        self._joins += 1
        wanted = {
            "session_timeout_ms": _PATIENCE_MS,
            "rebalance_timeout_ms": _PATIENCE_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"%d" % self._joins}],
        }
        while True:
            answer = await self._link.ask(ApiKey.JOIN_GROUP, 4, {**self._named, **wanted})
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._named["member_id"] = answer.member_id
            elif answer.error_code not in _RETRIABLE:
                break
            else:
                await asyncio.sleep(0.1)
        _expect(answer.error_code, ErrorCode.NONE)
        self._named["member_id"], self._generation = answer.member_id, answer.generation_id
        assigned = [{"member_id": each.member_id, "assignment": bytes(100)} for each in answer.members]
        values = {**self._named, "generation_id": self._generation, "assignments": assigned}
        return int((await self._link.ask(ApiKey.SYNC_GROUP, 3, values)).error_code)

    async def commit(self, topic: str, offset: int) -> None:
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index in range(OFFSETS_A_COMMIT)
        ]
        topics = [{"name": topic, "partitions": partitions}]
        values = {**self._named, "generation_id_or_member_epoch": self._generation, "topics": topics}
        answer = await self._link.ask(ApiKey.OFFSET_COMMIT, 7, values)
        for partition in answer.topics[0].partitions:
            _expect(partition.error_code, ErrorCode.NONE)


def _expect(code: int, expected: ErrorCode) -> None:
    if code != expected:
        raise WireError(f"expected {expected.name}, came error {code}")


async def _link(port: int) -> Link:
    return (await asyncio.get_running_loop().create_connection(Link, HOST, port))[1]


class Server:
    """The process under load, by its id."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def spent(self, what: str, work: Iterable[Awaitable[Any]]) -> dict[str, float]:
        """Do the work; the seconds that it took, and those of CPU that the server used."""
        begin, before = time.perf_counter(), cpu_seconds(self._pid)
        await asyncio.gather(*work)
        seconds = time.perf_counter() - begin
        return {f"{what}_s": seconds, f"{what}_cpu_s": cpu_seconds(self._pid) - before}

    def resident_mb(self) -> float:
        return resident_bytes(self._pid) / 1e6


async def _create(link: Link, topics: int) -> None:
    for number in range(topics):
        topic = {"name": f"topic-{number}", "num_partitions": PARTITIONS_A_TOPIC, "replication_factor": 1}
        values = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout_ms": 60_000}
        _expect((await link.ask(ApiKey.CREATE_TOPICS, 4, values)).topics[0].error_code, ErrorCode.NONE)


def _describe(link: Link, topics: list[dict[str, str]] | None) -> Awaitable[Any]:
    return link.ask(ApiKey.METADATA, 4, {"topics": topics, "allow_auto_topic_creation": False})


async def _groups(server: Server, links: list[Link], size: int) -> dict[str, float]:
    # Creates the topic of the groups; members try again until it is there.
    await links[0].ask(ApiKey.FIND_COORDINATOR, 2, {"key": "group-0"})
    members = [Member(link, f"group-{number % (2 * size)}") for number, link in enumerate(links)]
    gatherings = [Gathering(len(members[first :: 2 * size])) for first in range(2 * size)]
    joins = (member.join(gatherings[number % (2 * size)]) for number, member in enumerate(members))
    numbers = await server.spent("join", joins)
    end, commits = time.perf_counter() + _COMMIT_S, 0

    async def commit(number: int, member: Member) -> None:
        nonlocal commits
        while True:
            await member.commit(f"topic-{number % size}", commits)
            commits += 1
            if time.perf_counter() >= end:
                break

    numbers |= await server.spent("commits", (commit(*each) for each in enumerate(members)))
    numbers["commits_per_s"] = commits / numbers["commits_s"]
    numbers["commit_cpu_us"] = numbers["commits_cpu_s"] * 1e6 / commits
    large = [Member(link, "large") for link in links[:size]]
    rounds = []
    for _ in range(1 + _REBALANCES):
        gathering = Gathering(len(large))
        rounds.append(await server.spent("rebalance", [member.join(gathering) for member in large]))
    del rounds[0]  # The first one makes the group.
    numbers["rebalance_ms"] = median([each["rebalance_s"] for each in rounds]) * 1000
    numbers["rebalance_cpu_ms"] = sum(each["rebalance_cpu_s"] for each in rounds) * 1000 / _REBALANCES
    return numbers


async def run(port: int, pid: int, size: int, with_groups: bool) -> dict[str, float]:
    """The times, rates and bytes; `pid` is the server's. Raises WireError when an answer was wrong."""
    server = Server(pid)
    first = await _link(port)
    gc.disable()
    numbers = await server.spent("create", [_create(first, size)])
    links = await asyncio.gather(*(_link(port) for _ in range(10 * size)))
    numbers |= await server.spent("metadata", (_describe(link, [{"name": "topic-0"}]) for link in links))
    if with_groups:
        numbers |= await _groups(server, links, size)
    numbers["resident_mb"] = server.resident_mb()
    return numbers
