"""Initialize-, Read-, Write-, DeleteShareGroupState, ReadShareGroupStateSummary: the states of share groups.

The leaders of partitions ask their coordinator for them.

Invariant: each partition succeeds or fails alone, and is answered once its state is durable.

Versions: writes and summaries have the number of records that are done from 1 on. Source: Kafka's KafkaApis
and ShareCoordinatorService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from tidelog.broker.coordinator.share_states.machine import ShareStates, StateWrite
from tidelog.broker.coordinator.share_states.records import batch_values, batches_of
from tidelog.broker.coordinator.share_states.state import SharePartitionKey, coordinator_key
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError
from tidelog.protocol.steps import Pace

STATES_AT_ONCE = 20
"""They wait for one flush together."""
_ELEMENTS_PER_STATE = 10
"""See `protocol.steps`."""
_Request: TypeAlias = (
    "types.InitializeShareGroupStateRequest | types.ReadShareGroupStateRequest"
    " | types.WriteShareGroupStateRequest | types.DeleteShareGroupStateRequest"
    " | types.ReadShareGroupStateSummaryRequest"
)
_Ask = Callable[[SharePartitionKey, Any], Callable[[ShareStates], Any]]


class ShareStatesHandler:
    """Serves Initialize-, Read- and DeleteShareGroupState 0, Write- 0-1, ReadShareGroupStateSummary 0-1."""

    def __init__(self, services: Services) -> None:
        self._coordinator = services.share.coordinator
        self._turns = services.turns

    async def initialize(
        self, context: RequestContext, request: types.InitializeShareGroupStateRequest
    ) -> Mapping[str, object]:
        return await self._each(
            request,
            lambda key, each: (
                lambda machine: partial(machine.initialize, key, each.state_epoch, each.start_offset)
            ),
        )

    async def read(
        self, context: RequestContext, request: types.ReadShareGroupStateRequest
    ) -> Mapping[str, object]:
        return await self._each(
            request,
            lambda key, each: lambda machine: partial(machine.read, key, each.leader_epoch),
            lambda state: {
                "state_epoch": state.state_epoch,
                "start_offset": state.start_offset,
                "state_batches": batch_values(state.batches),
            },
        )

    async def write(
        self, context: RequestContext, request: types.WriteShareGroupStateRequest
    ) -> Mapping[str, object]:
        def ask(key: SharePartitionKey, each: Any) -> Callable[[ShareStates], Any]:
            batches = batches_of(each.state_batches)
            asked = StateWrite(
                each.state_epoch, each.leader_epoch, each.start_offset, each.delivery_complete_count, batches
            )
            return lambda machine: partial(machine.update, key, asked)

        return await self._each(request, ask)

    async def delete(
        self, context: RequestContext, request: types.DeleteShareGroupStateRequest
    ) -> Mapping[str, object]:
        return await self._each(request, lambda key, each: lambda machine: partial(machine.delete, key))

    async def summary(
        self, context: RequestContext, request: types.ReadShareGroupStateSummaryRequest
    ) -> Mapping[str, object]:
        return await self._each(
            request,
            lambda key, each: lambda machine: partial(machine.summary, key),
            lambda state: {
                "state_epoch": state.state_epoch,
                "leader_epoch": state.leader_epoch,
                "start_offset": state.start_offset,
                "delivery_complete_count": state.complete_count,
            },
        )

    async def _each(
        self, request: _Request, ask: _Ask, found: Callable[[Any], Mapping[str, object]] = lambda _: {}
    ) -> Mapping[str, object]:
        async def answer(topic_id: Any, each: Any) -> dict[str, object]:
            key = SharePartitionKey(request.group_id, topic_id, each.partition)
            try:
                state = await self._coordinator.run(coordinator_key(key), ask(key, each))
            except ApiError as error:
                return {"partition": each.partition, "error_code": error.code, "error_message": error.message}
            return {"partition": each.partition, **found(state)}

        results, pace = [], Pace()
        for topic in request.topics:
            partitions: list[dict[str, object]] = []
            for first in range(0, len(topic.partitions), STATES_AT_ONCE):
                some = topic.partitions[first : first + STATES_AT_ONCE]
                partitions += await asyncio.gather(*(answer(topic.topic_id, each) for each in some))
                if pace.spent(_ELEMENTS_PER_STATE * len(some)):
                    await self._turns.next()
            results.append({"topic_id": topic.topic_id, "partitions": partitions})
            if pace.spent():
                await self._turns.next()
        return {"results": results}
