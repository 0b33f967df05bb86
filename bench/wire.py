"""A blocking Kafka client of a few requests, enough to see that a server is ready and to prepare a load.

Invariant: one request at a time, so the next answer belongs to it. Not for use while a load is measured.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Self, TypeVar

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.schema import ApiKey, decode_response, encode_request

HOST = "127.0.0.1"
TOPIC = "bench"
_T = TypeVar("_T")
_SIZE = Struct(">i")
_METADATA_VERSION = 1
_CREATE_TOPICS_VERSION = 2
_DELETE_TOPICS_VERSION = 1
_INIT_PRODUCER_ID_VERSION = 4
_LIST_OFFSETS_VERSION = 2
_LATEST = -1


class WireError(RuntimeError):
    """The server answered with an error, or hung up; the message says which request."""


def until(condition: Callable[[], _T], what: str, limit_s: float = 30.0, poll_s: float = 0.01) -> _T:
    """What `condition` gives once it is true. Raises its last OSError or WireError, or WireError where `what`
    did not come."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if found := condition():
                return found
            failure: Exception = WireError(f"waited {limit_s:g} s for {what}")
        except (OSError, WireError) as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure
        time.sleep(poll_s)


class Wire:
    """Sends requests over one connection to 127.0.0.1:`port`. Raises OSError if nothing listens there."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=timeout_s)
        self._correlation_id = 0

    def ask(self, api_key: ApiKey, version: int, values: Mapping[str, object]) -> Any:
        """Send a request and return its response as a Container. Raises OSError, WireError."""
        self._correlation_id += 1
        body = encode_request(api_key, version, values)
        frame = b"".join(encode_request_frame(api_key, version, self._correlation_id, TOPIC, body))
        self._socket.sendall(frame)
        (size,) = _SIZE.unpack(self._receive(_SIZE.size, api_key))
        answer = self._receive(size, api_key)
        _, position = decode_response_header(api_key, version, answer)
        return decode_response(api_key, version, answer[position:])

    def _receive(self, size: int, api_key: ApiKey) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                text = f"expected {size} bytes, the server hung up after {len(data)}"
                raise WireError(f"{api_key.name}: {text}")
            data += received
        return bytes(data)

    def metadata(self) -> Any:
        """All topics and brokers."""
        return self.ask(ApiKey.METADATA, _METADATA_VERSION, {"topics": None})

    def create_topic(self, name: str = TOPIC, partitions: int = 1, replicas: Sequence[int] = ()) -> None:
        """Create `name`, and wait until its partitions answer; a topic that exists already is as good.

        `replicas`: the ids of the brokers that have each partition, the leader first. It is this one.
        """
        topic: dict[str, object] = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        assignments: list[dict[str, object]] = []
        if replicas:
            topic |= {"num_partitions": -1, "replication_factor": -1}
            assignments = [
                {"partition_index": index, "broker_ids": list(replicas)} for index in range(partitions)
            ]
        values = {"topics": [{**topic, "assignments": assignments, "configs": []}], "timeout_ms": 30_000}
        (result,) = self.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, values).topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise WireError(f"CREATE_TOPICS {name}: error {result.error_code}")
        until(lambda: self.end_offset(name, partitions) >= 0, name)

    def delete_topic(self, name: str) -> None:
        """Delete `name`, so that its unwritten bytes do not slow down later loads."""
        values = {"topic_names": [name], "timeout_ms": 10_000}
        (result,) = self.ask(ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, values).responses
        if result.error_code != ErrorCode.NONE:
            raise WireError(f"DELETE_TOPICS {name}: error {result.error_code}")

    def new_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch, once the server gives one."""
        return until(self._new_producer_id, "a producer id")

    def _new_producer_id(self) -> tuple[int, int]:
        values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, values)
        if answer.error_code != ErrorCode.NONE:
            raise WireError(f"INIT_PRODUCER_ID: error {answer.error_code}")
        return int(answer.producer_id), int(answer.producer_epoch)

    def end_offset(self, name: str = TOPIC, partitions: int = 1) -> int:
        """The offset after the last record of partition 0; of several partitions the sum."""
        asked = [{"partition_index": index, "timestamp": _LATEST} for index in range(partitions)]
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": name, "partitions": asked}]}
        answer = self.ask(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, values)
        results = answer.topics[0].partitions
        for result in results:
            if result.error_code != ErrorCode.NONE:
                raise WireError(f"LIST_OFFSETS {name}: error {result.error_code}")
        return sum(int(result.offset) for result in results)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
