"""Handlers over real services on a temporary folder, asked through the codecs that the wire uses."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS, Clock, OpenServices
from tidelog.broker.cluster.catalog import Listener, Topic
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.served_apis import build_handlers
from tidelog.broker.services import Services
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.hot import (
    FetchPartition,
    FetchRequest,
    ProducePartitionResult,
    ProduceRequest,
    TopicKey,
)
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey, decode_request, decode_response, encode_request, encode_response
from tidelog.protocol.steps import finish

LISTENER = Listener("OUTSIDE", "advertised.example", 19092)


def make_batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = NOW_MS,
) -> bytes:
    """One uncompressed record batch."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value, ())
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


@dataclass
class Asker:
    """Asks handlers and takes answers through encode and decode, so that both are what a client sees."""

    services: Services
    clock: Clock
    handlers: Mapping[ApiKey, Handler] = field(init=False)
    connection: ConnectionState = field(
        default_factory=lambda: ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "127.0.0.1")
    )

    def __post_init__(self) -> None:
        self.handlers = build_handlers(self.services)
        self.connection = ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "127.0.0.1")

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        header = RequestHeader(key, version, 1, "test")
        return finish(self.handlers[key](RequestContext(header, self.connection), request))

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        request = decode_request(key, version, encode_request(key, version, values))
        answer = self.call(key, version, request)
        if inspect.isawaitable(answer):
            answer = await answer
        return decode_response(key, version, encode_response(key, version, answer))

    def send(
        self,
        *parts: tuple[str, int, bytes | None],
        acks: int = -1,
        timeout_ms: int = 30_000,
        version: int = 9,
    ) -> Any:
        """Hand over a ProduceRequest; what the handler gives back, awaited or not."""
        topics = [(topic, [(index, records)]) for topic, index, records in parts]
        return self.call(ApiKey.PRODUCE, version, ProduceRequest(None, acks, timeout_ms, topics))

    async def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> ProducePartitionResult:
        answer = self.send((topic, partition, records), acks=acks, version=version)
        if inspect.isawaitable(answer):
            answer = await answer
        result: ProducePartitionResult = answer[0][1][0]
        return result

    async def join_consumer_group(
        self, group_id: str, member_id: str = "m", *, version: int = 1, **values: Any
    ) -> Any:
        """The answer to the first heartbeat of a member of the consumer protocol."""
        names = {"subscribed_topic_names": values.pop("topic_names", None)}
        first = {"member_epoch": 0, "rebalance_timeout_ms": 30_000, "topic_partitions": []}
        asked = {"group_id": group_id, "member_id": member_id, **first, **names, **values}
        return await self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **asked)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        answer = await self.ask(
            ApiKey.CREATE_TOPICS,
            5,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
                    ],
                }
            ],
        )
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def replica(self, topic: str, partition: int = 0) -> Replica:
        return self.services.replicas[topic, partition]

    def topic(self, name: str) -> Topic:
        found = self.services.catalog.topic(name)
        assert found is not None
        return found


def fetch_request(
    *parts: tuple[TopicKey, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    """A request for (topic, partition, offset) each."""
    topics: list[tuple[TopicKey, list[FetchPartition]]] = [
        (
            topic,
            [FetchPartition(index, leader_epoch, offset, last_fetched_epoch, -1, partition_max_bytes)],
        )
        for topic, index, offset in parts
    ]
    return FetchRequest(
        -1, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics
    )


@pytest.fixture
def open_asker(open_here: OpenServices, tmp_path: Path, clock: Clock) -> Callable[..., Any]:
    async def open_one(**settings: Any) -> Asker:
        # Else each group of a test begins seconds later.
        wanted = {"group_initial_rebalance_delay_ms": 0, "data_dir": tmp_path / "data", **settings}
        return Asker(await open_here(**wanted), clock)

    return open_one


@pytest.fixture
async def asker(open_asker: Callable[..., Any]) -> Asker:
    made: Asker = await open_asker()
    return made
