"""The states of share partitions where their coordinator is: on this broker directly, on others by requests.

Invariants: an answer was durable when it was given; a request without an answer may have been executed, and
is repeated until its time is over, because to store the same state again changes nothing.

On the event loop. Source: Kafka's DefaultStatePersister and PersisterStateManager.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from tidelog.broker.coordinator.decision import Operation
from tidelog.broker.coordinator.share_coordinator import ShareCoordinator
from tidelog.broker.coordinator.share_states.machine import ShareStates, StateWrite
from tidelog.broker.coordinator.share_states.records import batch_values, batches_of
from tidelog.broker.coordinator.share_states.state import SharePartitionKey, ShareState, coordinator_key
from tidelog.broker.peers.peers import Peers
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.schema import ApiKey

PATIENCE_SECONDS = 10.0
"""How long a coordinator is looked for: longer than an election, shorter than clients wait for an answer."""
_RETRY_SECONDS = 0.05
_LANE = "share states"
_RETRIABLE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)
_AnswerT = TypeVar("_AnswerT")


class ShareStatesClient:
    """All operations raise ApiError."""

    def __init__(self, coordinator: ShareCoordinator, peers: Peers, node_id: int) -> None:
        self._coordinator = coordinator
        self._peers = peers
        self._node_id = node_id
        self._is_closing = False

    def stop_waiting(self) -> None:
        """Ask nothing again from now on: the broker stops."""
        self._is_closing = True

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        await self._asked(
            key,
            lambda machine: partial(machine.initialize, key, state_epoch, start_offset),
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            lambda: {"state_epoch": state_epoch, "start_offset": start_offset},
            lambda _: None,
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        return await self._asked(
            key,
            lambda machine: partial(machine.read, key, leader_epoch),
            ApiKey.READ_SHARE_GROUP_STATE,
            lambda: {"leader_epoch": leader_epoch},
            lambda answer: ShareState(
                0,
                answer.state_epoch,
                leader_epoch,
                answer.start_offset,
                -1,
                0,
                0,
                batches_of(answer.state_batches),
            ),
        )

    async def write(self, key: SharePartitionKey, asked: StateWrite) -> None:
        await self._asked(
            key,
            lambda machine: partial(machine.update, key, asked),
            ApiKey.WRITE_SHARE_GROUP_STATE,
            lambda: {
                "state_epoch": asked.state_epoch,
                "leader_epoch": asked.leader_epoch,
                "start_offset": asked.start_offset,
                "delivery_complete_count": asked.complete_count,
                "state_batches": batch_values(asked.batches),
            },
            lambda _: None,
        )

    async def delete(self, key: SharePartitionKey) -> None:
        await self._asked(
            key,
            lambda machine: partial(machine.delete, key),
            ApiKey.DELETE_SHARE_GROUP_STATE,
            dict,
            lambda _: None,
        )

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """Without the batches."""
        return await self._asked(
            key,
            lambda machine: partial(machine.summary, key),
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            lambda: {"leader_epoch": -1},
            lambda answer: ShareState(
                0,
                answer.state_epoch,
                answer.leader_epoch,
                answer.start_offset,
                answer.delivery_complete_count,
                0,
                0,
            ),
        )

    async def _asked(
        self,
        key: SharePartitionKey,
        operation: Callable[[ShareStates], Operation[_AnswerT]],
        api_key: ApiKey,
        values: Callable[[], Mapping[str, object]],
        read: Callable[[Any], _AnswerT],
    ) -> _AnswerT:
        """`values`: what a request to another broker says."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        name = coordinator_key(key)
        while True:
            try:
                await self._coordinator.make_topic()
                node_id = self._coordinator.leader_of(name)
                if node_id == self._node_id:
                    return await self._coordinator.run(name, operation)
                if node_id < 0:
                    message = f"the state of share partition {name} has no coordinator now"
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
                return read(await self._answer(node_id, key, api_key, values()))
            except ApiError as error:
                if error.code not in _RETRIABLE or loop.time() >= deadline or self._is_closing:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _answer(
        self, node_id: int, key: SharePartitionKey, api_key: ApiKey, values: Mapping[str, object]
    ) -> Any:
        partitions = [{"partition": key.partition, **values}]
        answer = await self._peers.call(
            node_id,
            api_key,
            {"group_id": key.group_id, "topics": [{"topic_id": key.topic_id, "partitions": partitions}]},
            _LANE,
        )
        for topic in answer.results:
            for each in topic.partitions:
                if (topic.topic_id, each.partition) == (key.topic_id, key.partition):
                    code = error_code(each.error_code)
                    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                        raise self._peers.not_authorized(node_id, api_key)
                    if code:
                        raise ApiError(code, each.error_message)
                    return each
        message = f"broker {node_id} answers {api_key.name} for other partitions than it was asked about"
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, message)
