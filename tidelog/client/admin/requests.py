"""The requests of an administrator: which broker each goes to, and how long it is repeated.

Owns the choice of the broker, and the errors. Invariants: a request to a coordinator looks it up each time.
Retriable errors are retried until request_timeout_ms; an unknown topic is not retriable here, because nothing
creates it meanwhile.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from tidelog.client.coordinators import GROUP, NAMES, TRANSACTION
from tidelog.client.retries import Retries
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection
from tidelog.wire.errors import BrokerUnavailableError, ClientError, ConnectionLostError, broker_error

_TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
_NAMED = 20
"""How many more refusals the message of an error names."""
Results = Callable[[Any], Iterable[Any]]
Name = Callable[[Any], str]


def itself(answer: Any) -> list[Any]:
    """The results of an answer that has one error code for all of it."""
    return [answer]


def partitions_of(answer: Any) -> list[Any]:
    """The results of an answer that has one for each partition of its topics."""
    return [each for topic in answer.topics for each in topic.partitions]


class Requests:
    """To the brokers of one cluster. Each returns the answer, or raises ClientError: the first error of
    `results(answer)`, of which `name(result)` says what it is about; its message says what else is refused.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.timeout_ms = cluster.config.request_timeout_ms

    async def to_any(
        self, api_key: ApiKey, values: Mapping[str, object], results: Results, name: Name
    ) -> Any:
        return await self.retry(lambda: self.cluster.call_any(api_key, values), results, name)

    async def to_broker(
        self, node_id: int | None, api_key: ApiKey, values: Mapping[str, object], results: Results, name: Name
    ) -> Any:
        """To this broker; None: to any. If no broker has the id, any broker answers, with an error."""

        async def ask() -> Any:
            if node_id is not None and node_id not in self.cluster.image.nodes:
                await self.cluster.refresh()
            if node_id is None or node_id not in self.cluster.image.nodes:
                return await self.cluster.call_any(api_key, values)
            return await (await self.cluster.connected(node_id)).call(api_key, values)

        return await self.retry(ask, results, name)

    async def to_leader(
        self, of: TopicPartition, api_key: ApiKey, values: Mapping[str, object], name: Name
    ) -> Any:
        """To the broker that leads a partition; the results are those of partitions."""

        async def ask() -> Any:
            return await (await self.cluster.leader_connection(of)).call(api_key, values)

        return await self.retry(ask, partitions_of, name)

    async def to_controller(
        self,
        api_key: ApiKey,
        values: Mapping[str, object] | Callable[[int], Mapping[str, object]],
        results: Results,
        name: Name,
    ) -> Any:
        """`values` may depend on the version that the controller supports."""

        async def ask() -> Any:
            image = self.cluster.image if self.cluster.image.nodes else await self.cluster.refresh()
            nodes, controller = image.nodes, image.controller_id
            if not nodes:
                raise BrokerUnavailableError("the metadata of the cluster names no broker")
            # If no controller is named, any broker forwards the request.
            connection = await self.cluster.connected(controller if controller in nodes else min(nodes))
            version = connection.version(api_key)
            fields = values(version) if callable(values) else values
            return await connection.call(api_key, fields, version=version)

        return await self.retry(ask, results, name)

    async def to_coordinator(
        self,
        kind: int,
        of: str,
        api_key: ApiKey,
        values: Mapping[str, object],
        results: Results,
        at_most: Callable[[Connection], int | None] = lambda _: None,
    ) -> Any:
        """To the broker that keeps a group or a transactional id, in a version of `at_most`."""

        async def ask() -> Any:
            connection = await self.coordinator(kind, of)
            version = connection.version(api_key, at_most=at_most(connection))
            return await connection.call(api_key, values, version=version)

        return await self.retry(ask, results, lambda _: _name_of(kind, of))

    async def coordinator(self, kind: int, of: str) -> Connection:
        """A connection to the broker that keeps a group or a transactional id."""
        key: DictOf[types.FindCoordinatorRequest] = {"key": of, "key_type": kind}
        found: types.FindCoordinatorResponse = await self.to_any(
            ApiKey.FIND_COORDINATOR, key, itself, lambda _: f"the coordinator of {_name_of(kind, of)}"
        )
        return await self.cluster.connected(found.node_id)

    async def to_coordinators(
        self, kind: int, api_key: ApiKey, values: Mapping[str, object], name: Name, at_least: int = 0
    ) -> AsyncIterator[Any]:
        """The answers of all brokers. Raises LEADER_NOT_AVAILABLE if a partition of the coordinators' topic
        has no leader, because the answers would be silently incomplete."""
        topic = _TOPICS[kind]
        asked: DictOf[types.MetadataRequest] = {
            "topics": [{"name": topic}],
            "allow_auto_topic_creation": False,
        }
        await self.to_any(
            ApiKey.METADATA,
            asked,
            lambda answer: [each for each in partitions_of(answer) if each.leader_id < 0],
            lambda each: f"the coordinator that keeps {topic}-{each.partition_index}",
        )
        await self.cluster.refresh()
        for node_id in self.cluster.image.nodes:

            async def ask(node_id: int = node_id) -> Any:
                connection = await self.cluster.connected(node_id)
                version = connection.version(api_key, at_least)
                return await connection.call(api_key, values, version=version)

            yield await self.retry(ask, itself, name)

    async def retry(self, ask: Callable[[], Any], results: Results, name: Name) -> Any:
        """Call `ask` until a broker answers and no result has a retriable error."""
        retries = Retries(self.cluster.config)
        while True:
            error: ClientError | None
            try:
                answer = await ask()
            except BrokerUnavailableError as unavailable:
                # Nothing was sent, and a broker that starts again or another one may take it.
                error = unavailable
            else:
                error = _refusal(results(answer), name)
                if error is None:
                    return answer
            if is_unknown_topic(error):
                raise error
            await retries.wait(error)
            with contextlib.suppress(BrokerUnavailableError, ConnectionLostError):
                await self.cluster.refresh()


def is_unknown_topic(error: ClientError) -> bool:
    return getattr(error, "code", None) in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def _name_of(kind: int, of: str) -> str:
    return f"{NAMES[kind]} {of!r}"


def _refusal(results: Iterable[Any], name: Name) -> ClientError | None:
    """None if no result has an error."""
    refused = [
        (code, name(result), getattr(result, "error_message", None) or code.message)
        for result in results
        if (code := error_code(result.error_code)) is not ErrorCode.NONE
    ]
    if not refused:
        return None
    (code, what, text), *others = refused
    texts = [text, *(f"{what}: {text}" for _, what, text in others[:_NAMED])]
    if len(others) > _NAMED:
        texts.append(f"and {len(others) - _NAMED} more")
    return broker_error(code, what, "; ".join(texts))
