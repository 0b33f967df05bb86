"""Two scripted brokers that lead one partition in turn, over one real log that both would have replicated."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.unit.broker.storage.support import NOW_MS, open_log
from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.client import Consumer, Producer
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey


class TwoNodes:
    """Nodes 1 and 2. Who does not lead answers NOT_LEADER_OR_FOLLOWER and stores nothing.

    `moves_after` counts produce requests down to the next change of leaders; `loses_answer` says whether the
    request that is last before it is stored without an answer, as by a leader that dies. `hangs` says whether
    that leader, and who does not lead, keeps the connection and is silent. `names_leader` says whether who
    does not lead names the leader (KIP-951).
    """

    def __init__(self, folder: Path) -> None:
        self.nodes = {1: ScriptedBroker(), 2: ScriptedBroker()}
        self.leader = 1
        self.leader_epoch = 0
        self.moves_after: list[int] = []
        self.loses_answer = False
        self.hangs = False
        self.names_leader = False
        self.refused = 0
        self._log: PartitionLog = open_log(folder)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for number, node in self.nodes.items():
            await self._stack.enter_async_context(node)
            node.scripts[ApiKey.METADATA] = self._metadata
            node.scripts[ApiKey.PRODUCE] = partial(self._produce, number)
            node.scripts[ApiKey.FETCH] = partial(self._fetch, number)
            node.scripts[ApiKey.OFFSET_FOR_LEADER_EPOCH] = partial(self._end_of_epoch, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._log.close(clean=False)

    def _with_defaults(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        addresses = [node.address for node in self.nodes.values()]
        return {
            "bootstrap_servers": addresses,
            "retry_backoff_ms": 5,
            "request_timeout_ms": 5_000,
            **settings,
        }

    def producer(self, **settings: Any) -> Producer:
        return Producer(**self._with_defaults(settings))

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(TOPIC, **self._with_defaults({"auto_offset_reset": "none", **settings}))

    def move(self) -> None:
        """The other node leads from now on."""
        self.leader = 3 - self.leader
        self.leader_epoch += 1

    def append(self, batch: bytes) -> None:
        self._log.append(batch, leader_epoch=self.leader_epoch, now_ms=NOW_MS)

    def sequences(self) -> list[tuple[int, int, int]]:
        """(epoch, first sequence, records) of every batch that is stored, in order."""
        data = self._read(0)
        found = [header for _, header in iter_batches(data)]
        return [(each.producer_epoch, each.base_sequence, each.record_count) for each in found]

    def _read(self, offset: int) -> bytes:
        read = self._log.read(Read(offset, 1 << 20, self._log.end_offset))
        return b"".join(bytes(piece) for piece in read.records)

    def _metadata(self, request: Request) -> dict[str, Any]:
        answer: dict[str, Any] = self.nodes[1].metadata([TOPIC], leader=self.leader)
        answer["brokers"] = [
            {"node_id": number, "host": "127.0.0.1", "port": node.port, "rack": None}
            for number, node in self.nodes.items()
        ]
        answer["topics"][0]["partitions"][0]["leader_epoch"] = self.leader_epoch
        return answer

    def _produce(self, number: int, request: Request) -> dict[str, Any] | None:
        if number != self.leader:
            self.refused += 1
            if self.hangs:
                return None
            answer = ScriptedBroker.produced(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return self._naming_leader(answer, answer["responses"][0]["partition_responses"][0])
        data = request.values.topic_data[0].partition_data[0].records
        try:
            result = self._log.append(data, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        except ApiError as error:
            return ScriptedBroker.produced(request, error.code)
        if self.moves_after:
            self.moves_after[0] -= 1
            if not self.moves_after[0]:
                del self.moves_after[0]
                self.move()
                if self.hangs:
                    return None
                if self.loses_answer:
                    raise ConnectionError
        return ScriptedBroker.produced(request, base_offset=result.base_offset)

    def _naming_leader(self, answer: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        if self.names_leader:
            result["current_leader"] = {"leader_id": self.leader, "leader_epoch": self.leader_epoch}
            port = self.nodes[self.leader].port
            answer["node_endpoints"] = [{"node_id": self.leader, "host": "127.0.0.1", "port": port}]
        return answer

    def _end_of_epoch(self, number: int, request: Request) -> dict[str, Any]:
        (wanted,) = request.values.topics[0].partitions
        result = {"partition": 0, "error_code": self._refusal(number, wanted.current_leader_epoch)}
        if not result["error_code"]:
            found = self._log.end_offset_for_epoch(wanted.leader_epoch, self.leader_epoch)
            result["leader_epoch"], result["end_offset"] = found
        return {"topics": [{"topic": TOPIC, "partitions": [result]}]}

    def _refusal(self, number: int, leader_epoch: int) -> ErrorCode:
        if leader_epoch not in (-1, self.leader_epoch):
            is_old = leader_epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if number == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _fetch(self, number: int, request: Request) -> dict[str, Any]:
        found: dict[str, object] = {"partition_index": 0, "high_watermark": self._log.end_offset}
        (wanted,) = request.values.topics[0].partitions
        if refusal := self._refusal(number, wanted.current_leader_epoch):
            self.refused += 1
            found |= {"error_code": refusal, "records": b""}
            self._naming_leader({}, found)
        elif wanted.fetch_offset < self._log.end_offset:
            found |= {"error_code": 0, "records": self._read(wanted.fetch_offset)}
        else:
            found |= {"error_code": 0, "records": b""}
        return {"session_id": 0, "responses": [{"topic": TOPIC, "partitions": [found]}]}
