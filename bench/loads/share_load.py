"""A share group over sockets: members that acquire records of a partition and accept them.

Each member has one request in flight. It accepts what it acquired with its next ShareFetch, or each record
with a ShareAcknowledge of its own (`one_by_one`). With a `rate`, a producer sends one record at a time
meanwhile, and the latency is that from its request to the member that acquired the record; without one, the
members share a topic that is full, from its beginning, as a new group each time. `in_flight` acquires and
accepts nothing.
"""

import gc
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from bench.loads.frames import FrameMaker
from bench.wire import HOST, Wire, WireError
from tidelog.cli.bench import percentile
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.schema import ApiKey, decode_response, encode_request

_HEARTBEAT_VERSION = _FETCH_VERSION = _ACKNOWLEDGE_VERSION = 1
_METADATA_VERSION = 12
_CONFIGS_VERSION = 1
_COORDINATOR_VERSION = 2
_GROUP_RESOURCE = 32
_MOST_RECORDS = 500
_WAIT_MS = 500
_LARGEST_BYTES = 1 << 20
_ACCEPT = 1
_MOST_JOINED = 200
"""Members of one group: `group.share.max.size`. Who fetches does not have to be one."""
_READY_S = 30.0
_POLL_S = 0.02


class _Member:
    """A member of the group, on a connection of its own, that reads one partition."""

    def __init__(self, port: int, group: str, topic_id: UUID, partition: int, *, one_by_one: bool) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted = 0
        self.member_id = str(uuid4())
        self._group = group
        self._topic_id = topic_id
        self._partition = partition
        self._one_by_one = one_by_one
        self._epoch = 0
        self._acquired: deque[tuple[int, int]] = deque()
        self._sent: list[tuple[int, int]] = []
        self._asked = ApiKey.SHARE_FETCH
        self._data = bytearray()

    def ask(self) -> None:
        """Accept what is to be accepted next, and fetch unless that is one record."""
        batches: list[tuple[int, int]] = []
        self._asked = ApiKey.SHARE_FETCH
        if self._acquired and self._one_by_one:
            first, last = self._acquired.popleft()
            batches = [(first, first)]
            if first < last:
                self._acquired.appendleft((first + 1, last))
            self._asked = ApiKey.SHARE_ACKNOWLEDGE
        elif self._acquired:
            batches = list(self._acquired)
            self._acquired.clear()
        acknowledged = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [_ACCEPT]}
            for first, last in batches
        ]
        partition = {"partition_index": self._partition, "acknowledgement_batches": acknowledged}
        values: dict[str, Any] = {
            "group_id": self._group,
            "member_id": self.member_id,
            "share_session_epoch": self._epoch,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
        }
        if not batches and self._epoch:
            values["topics"] = []
        version = _ACKNOWLEDGE_VERSION
        if self._asked is ApiKey.SHARE_FETCH:
            version = _FETCH_VERSION
            values |= {
                "max_wait_ms": _WAIT_MS,
                "min_bytes": 1,
                "max_bytes": _LARGEST_BYTES,
                "max_records": _MOST_RECORDS,
                "batch_size": _MOST_RECORDS,
                "forgotten_topics_data": [],
            }
        self._sent = batches
        body = encode_request(self._asked, version, values)
        self.socket.sendall(b"".join(encode_request_frame(self._asked, version, 0, "bench", body)))

    def receive(self) -> list[tuple[int, int]] | None:
        """Read what has come: the ranges of offsets that a whole answer acquires, None before it is whole.
        Raises WireError, OSError."""
        data = self.socket.recv(_LARGEST_BYTES)
        if not data:
            raise WireError("the server hung up")
        self._data += data
        size = int.from_bytes(self._data[:4], "big") + 4
        if len(self._data) < max(size, 8):
            return None
        answer_bytes = bytes(self._data[4:size])
        del self._data[:size]
        _, position = decode_response_header(self._asked, 1, answer_bytes)
        answer = decode_response(self._asked, 1, memoryview(answer_bytes)[position:])
        partitions = [each for topic in answer.responses for each in topic.partitions]
        codes = {answer.error_code, *(each.error_code for each in partitions)}
        if self._asked is ApiKey.SHARE_FETCH:
            codes |= {each.acknowledge_error_code for each in partitions}
        if codes != {ErrorCode.NONE}:
            raise WireError(f"{self._asked.name} of {self._group}: errors {sorted(codes)}")
        self._epoch += 1
        self.accepted += sum(last - first + 1 for first, last in self._sent)
        if self._asked is not ApiKey.SHARE_FETCH:
            return []
        found = [
            (each.first_offset, each.last_offset) for part in partitions for each in part.acquired_records
        ]
        self._acquired.extend(found)
        return found

    def acquire(self, records: int) -> int:
        """Acquire so many records, up to the end of an answer; how many. Raises WireError, OSError."""
        count, deadline = 0, time.monotonic() + _READY_S
        while count < records:
            if time.monotonic() > deadline:
                raise WireError(f"{self._group}: {count} of {records} records after {_READY_S} s")
            self.ask()
            while (found := self.receive()) is None:
                pass
            count += sum(last - first + 1 for first, last in found)
            self._acquired.clear()
        return count


def _prepared(port: int, topic: str, partitions: Iterable[int], *, one_by_one: bool = False) -> list[_Member]:
    """A member for each of these partitions, of a new group that reads from the beginning."""
    group = f"bench-{os.getpid()}"
    with Wire(port) as wire:
        answer = wire.ask(
            ApiKey.METADATA, _METADATA_VERSION, {"topics": [{"topic_id": UUID(int=0), "name": topic}]}
        )
        (described,) = answer.topics
        # Kafka makes the topic of the group coordinators when it is asked for one.
        wire.ask(ApiKey.FIND_COORDINATOR, _COORDINATOR_VERSION, {"key": group, "key_type": 0})
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configs": [config]}
        altered = wire.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _CONFIGS_VERSION,
            {"resources": [resource], "validate_only": False},
        )
        if altered.responses[0].error_code:
            raise WireError(f"settings of {group}: {altered.responses[0].error_message}")
        found = [_Member(port, group, described.topic_id, each, one_by_one=one_by_one) for each in partitions]
        _join(wire, group, [member.member_id for member in found[:_MOST_JOINED]], topic)
    return found


def _join(wire: Wire, group: str, member_ids: Iterable[str], topic: str) -> None:
    """Return once each has partitions: all together, because Kafka assigns them once per second. Raises
    WireError."""
    deadline, epochs, code = time.monotonic() + _READY_S, dict.fromkeys(member_ids, 0), 0
    while epochs:
        if time.monotonic() > deadline:
            raise WireError(f"{group}: no partition after {_READY_S} s, error {code}")
        for member_id, epoch in list(epochs.items()):
            values = {
                "group_id": group,
                "member_id": member_id,
                "member_epoch": epoch,
                "subscribed_topic_names": [topic],
            }
            answer = wire.ask(ApiKey.SHARE_GROUP_HEARTBEAT, _HEARTBEAT_VERSION, values)
            code = answer.error_code
            if code == ErrorCode.NONE:
                epochs[member_id] = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    del epochs[member_id]
        if epochs:
            time.sleep(_POLL_S)


@contextmanager
def in_flight(port: int, topic: str, partitions: int, records: int) -> Iterator[int]:
    """How many records a new group has in flight within the block: so many of each partition, or a little
    more. Raises WireError, OSError."""
    group = _prepared(port, topic, range(partitions))
    try:
        yield sum(member.acquire(records) for member in group)
    finally:
        for member in group:
            member.socket.close()


def run(
    port: int,
    topic: str,
    seconds: float,
    members: int = 1,
    one_by_one: bool = False,
    rate: float | None = None,
    value_bytes: int = 100,
) -> dict[str, float]:
    """Read for `seconds`, on a busy machine until a record is accepted. Raises WireError, OSError."""
    group = _prepared(port, topic, [0] * members, one_by_one=one_by_one)
    selector = selectors.DefaultSelector()
    for member in group:
        selector.register(member.socket, selectors.EVENT_READ, member)
    sent_at: list[float] = []
    latencies: list[float] = []
    producer = socket.create_connection((HOST, port))
    producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with Wire(port) as wire:
        first_offset = wire.end_offset(topic)
        maker = FrameMaker(*wire.new_producer_id(), topic, (0,), bytes(value_bytes))
    if rate:
        selector.register(producer, selectors.EVENT_READ)
    gc.disable()
    begin = time.perf_counter()
    end = begin + seconds
    for member in group:
        member.ask()
    latest = end + _READY_S
    while (now := time.perf_counter()) < (end if any(each.accepted for each in group) else latest) and (
        rate or sum(each.accepted for each in group) < first_offset
    ):
        due = begin + len(sent_at) / rate if rate else end
        if rate and due <= now:
            sent_at.append(now)
            producer.sendall(maker.patched())
            continue
        for key, _ in selector.select(max(0.001, min(due, end) - now)):
            if key.data is None:
                producer.recv(1 << 16)
                continue
            found = key.data.receive()
            if found is None:
                continue
            now = time.perf_counter()
            for first, last in found if rate else ():
                latencies += [now - sent_at[offset - first_offset] for offset in range(first, last + 1)]
            key.data.ask()
    taken = time.perf_counter() - begin
    for member in group:
        member.socket.close()
    latencies.sort()
    numbers = {"records": sum(member.accepted for member in group), "seconds": taken, "run_seconds": taken}
    if rate:
        numbers |= {
            name: percentile(latencies, share) * 1000 for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))
        }
    return numbers
