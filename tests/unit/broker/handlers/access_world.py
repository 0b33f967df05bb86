"""A broker with an authorizer, its administrator, Alice, and what their requests name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from tests.unit.broker.handlers.conftest import LISTENER, make_batch
from tests.unit.broker.net.peers import request_frame
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.exchange import Exchange
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.services import Services
from tidelog.protocol.acls import Acl
from tidelog.protocol.framing import decode_response_header
from tidelog.protocol.schema import ApiKey, decode_response

ALICE = "User:alice"
MISSING_ID = UUID(int=7)


class Client:
    """A connection as dispatch sees it."""

    def __init__(self, dispatcher: Dispatcher, name: str) -> None:
        self.state = ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "10.0.0.1")
        self.state.principal = Principal("User", name)
        self.routes = dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED)
        self.ready: asyncio.Queue[Exchange] = asyncio.Queue()
        self.stream: ProduceStream | None = None
        self.last_produce: tuple[object, ...] = ()
        self._dispatcher = dispatcher
        self.has_waited = False
        """Whether the last answer did not come at once."""

    def answer_ready(self, pending: Exchange) -> None:
        self.ready.put_nowait(pending)

    def effect_taken(self, pending: Exchange, freed_bytes: int) -> None: ...

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None: ...

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> tuple[bytes, Any]:
        """The answer's body, and its values."""
        frame = request_frame(key, version, values, 99)
        answer: Any = self._dispatcher.dispatch(self, memoryview(frame)[4:], 0.0)  # type: ignore[arg-type]
        self.has_waited = isinstance(answer, Exchange)
        if isinstance(answer, Exchange):
            if answer.answer is None:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self.ready.get()
            answer = answer.answer
        assert answer is not None
        data = b"".join(answer)[4:]
        _, position = decode_response_header(key, version, memoryview(data))
        return data[position:], decode_response(key, version, data[position:])


@dataclass
class World:
    """One broker with an authorizer, its administrator and Alice, who may do what a test allows."""

    services: Services
    admin: Client
    alice: Client
    allowed: tuple[Acl, ...] = ()
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    def allow(self, *acls: Acl) -> None:
        """From now on these ACLs hold and no others."""
        assert self.services.acls.authorizer is not None
        self.services.acls.authorizer.change(set(acls), set(self.allowed))
        self.allowed = tuple(set(acls))

    def state(self, *, with_offsets_topic: bool = True) -> object:
        """Everything durable: the catalog's revision and the ends and starts of all logs.

        The offsets topic also changes when a group of an earlier case follows changed ACLs.
        """
        logs = {
            key: (replica.log.end_offset, replica.log.start_offset)
            for key, replica in self.services.replicas.items()
            if with_offsets_topic or key[0] != OFFSETS_TOPIC
        }
        return self.services.catalog.revision, logs, self.services.producer_ids.bound()

    async def make(self) -> Names:
        """A topic with records, a group of either protocol and a transaction, that no other test uses."""
        number = next(self.ids)
        names = Names(f"topic-{number:04d}", f"group-{number:04d}", f"transaction-{number:04d}")
        ask = self.admin.ask
        topics = [{"name": names.topic, "num_partitions": 1, "replication_factor": 1}]
        await ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics})
        await ask(ApiKey.PRODUCE, 9, produce(names))
        await ask(ApiKey.OFFSET_COMMIT, 8, commit(names))
        topic = self.services.catalog.topic(names.topic)
        assert topic is not None
        return names._replace(topic_id=topic.topic_id)

    async def begin(self, names: Names) -> Names:
        """Begin a transaction on the topic."""
        _, given = await self.admin.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            {"transactional_id": names.transaction, "transaction_timeout_ms": 60_000},
        )
        names = names._replace(producer=(given.producer_id, given.producer_epoch))
        _, added = await self.admin.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_partitions(names))
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        return names

    async def join(self, names: Names) -> Names:
        """Let a member of the consumer protocol have the topic."""
        await self.admin.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(names, names.consumers))
        return names

    async def share(self, names: Names) -> Names:
        """Let a member of a share group have the topic."""
        await self.admin.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat(names))
        return names

    async def leave_shared(self, names: Names) -> Names:
        """Let it leave."""
        await self.admin.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**share_heartbeat(names), "member_epoch": -1})
        return names

    async def fetch_shared(self, names: Names) -> Names:
        """Begin its share session."""
        await self.admin.ask(ApiKey.SHARE_FETCH, 2, share_fetch(names))
        return names


class Names(NamedTuple):
    topic: str
    group: str
    transaction: str
    topic_id: UUID = MISSING_ID
    producer: tuple[int, int] = (0, 0)

    @property
    def consumers(self) -> str:
        return f"consumers-{self.group}"

    @property
    def fresh(self) -> str:
        return f"new-{self.topic}"

    @property
    def user(self) -> str:
        return f"user-{self.topic}"


Values = Callable[[Names], Mapping[str, Any]]


def produce(
    names: Names, transactional_id: str | None = None, records: bytes | None = None
) -> dict[str, Any]:
    parts = [{"index": 0, "records": records or make_batch(b"v")}]
    topics = [{"name": names.topic, "topic_id": names.topic_id, "partition_data": parts}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 5_000, "topic_data": topics}


def commit(names: Names) -> dict[str, Any]:
    parts = [{"partition_index": 0, "committed_offset": 1}]
    return {"group_id": names.group, "topics": [{"name": names.topic, "partitions": parts}]}


def add_partitions(names: Names) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": names.transaction,
        "v3_and_below_producer_id": names.producer[0],
        "v3_and_below_producer_epoch": names.producer[1],
        "v3_and_below_topics": [{"name": names.topic, "partitions": [0]}],
    }


def in_transaction(names: Names) -> dict[str, Any]:
    return {
        "transactional_id": names.transaction,
        "producer_id": names.producer[0],
        "producer_epoch": names.producer[1],
    }


def heartbeat(names: Names, group: str, **more: Any) -> dict[str, Any]:
    first = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    return {"group_id": group, **first, "subscribed_topic_names": [names.topic], **more}


def share_heartbeat(names: Names) -> dict[str, Any]:
    first = {"group_id": names.group, "member_id": "m", "member_epoch": 0}
    return {**first, "subscribed_topic_names": [names.topic]}


def share_fetch(names: Names, epoch: int = 0, **partition: Any) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "acknowledgement_batches": [], **partition}]
    return {
        "group_id": names.group,
        "member_id": "m",
        "share_session_epoch": epoch,
        "max_wait_ms": 0,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": names.topic_id, "partitions": partitions}],
    }


def share_acknowledge(names: Names) -> dict[str, Any]:
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    values = share_fetch(names, 1, acknowledgement_batches=batches)
    return {name: values[name] for name in ("group_id", "member_id", "share_session_epoch", "topics")}


def share_state(**partition: Any) -> Values:
    return lambda names: {
        "group_id": names.group,
        "topics": [{"topic_id": names.topic_id, "partitions": [{"partition": 0, **partition}]}],
    }


def fetch(names: Names) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    topic = {"topic": names.topic, "topic_id": names.topic_id, "partitions": [part]}
    return {"max_wait_ms": 0, "min_bytes": 0, "topics": [topic]}


def topic_resource(names: Names) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": names.topic, "configuration_keys": None}


def group_resource(names: Names) -> dict[str, Any]:
    return {"resource_type": 32, "resource_name": names.group, "configuration_keys": None}


def changed(resource: Mapping[str, Any], key: str, value: str) -> dict[str, Any]:
    one = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    return {"resources": [{**one, "configs": [{"name": key, "value": value}]}]}


def in_topics(**partition: Any) -> Values:
    return lambda names: {"topics": [{"name": names.topic, "partitions": [partition]}]}


def in_group(**more: Any) -> Values:
    return lambda names: {"group_id": names.group, **more}


def fixed(**values: Any) -> Values:
    return lambda names: values


ACL = {
    "resource_type": 2,
    "resource_name": "no-topic",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NO_ACLS = {**ACL_FILTER, "principal_filter": "User:nobody"}
CLIENT_METRICS = {"resource_type": 16, "resource_name": "all", "configuration_keys": None}
BROKER = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
