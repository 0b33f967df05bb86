"""ShareGroupHeartbeat, ShareGroupDescribe, and the APIs of share groups' offsets.

Owns the conversion between the wire and the machine of these groups, and when the states of partitions begin
and end. Invariants: a partition is assigned only after its state exists; the states of a group are deleted
before the group is, and what a crash interrupted is continued by the next request.

Versions: DescribeShareGroupOffsets has the lag from 1 on. Source: Kafka's KafkaApis and
GroupCoordinatorService, KIP-932, KIP-1226.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tidelog.broker.configuration.group_settings import share_group_config
from tidelog.broker.coordinator.consumer_groups.group import JOINING_EPOCH
from tidelog.broker.coordinator.consumer_groups.records import assignment_values
from tidelog.broker.coordinator.share_groups.group import ShareGroup, StatePartitions
from tidelog.broker.coordinator.share_groups.machine import (
    ASSIGNOR,
    DescribedShareGroup,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    check_request,
    not_found,
)
from tidelog.broker.coordinator.share_states.state import UNINITIALIZED, SharePartitionKey
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Pace, each
from tidelog.protocol.types import NO_OFFSET

_LATEST = -1
_STEP_COST_OFFSETS = 5
"""A group or a partition counts as this many elements (see `protocol.steps`)."""
NO_UUID = UUID(int=0)


class ShareGroupsHandler(GuardedHandler):
    """Serves ShareGroupHeartbeat, -Describe 1, DescribeShareGroupOffsets 0-1, Alter- and Delete- 0."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._groups = services.groups
        self._initializing: dict[str, asyncio.Task[None]] = {}

    # Members

    async def heartbeat(
        self, context: RequestContext, request: types.ShareGroupHeartbeatRequest
    ) -> DictOf[types.ShareGroupHeartbeatResponse]:
        services = self._services
        config = share_group_config(services.config, services.catalog, request.group_id)
        names = request.subscribed_topic_names
        wanted = ShareHeartbeat(
            request.group_id,
            request.member_id,
            request.member_epoch,
            request.rack_id,
            context.header.client_id or "",
            f"/{context.connection.client_host}",
            None if names is None else tuple(names),
            config.session_timeout_ms,
            config.heartbeat_interval_ms,
        )
        check_request(wanted)
        if self._access.is_on:
            check = partial(self._access.check, context, DESCRIBE_TOPIC)
            await services.turns.run(each(check, wanted.topic_names or (), Pace()))
        if wanted.member_epoch == JOINING_EPOCH:
            await self._groups.make_topic()
        answer = await self._answer(wanted)
        assignment = answer.assignment
        if answer.without_state and await self._initialized(wanted.group_id, answer):
            answer = await self._answer(wanted._replace(member_epoch=answer.member_epoch))
            assignment = assignment if answer.assignment is None else answer.assignment
        return {
            "error_code": ErrorCode.NONE,
            "member_id": wanted.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval_ms": answer.heartbeat_interval_ms,
            "assignment": None if assignment is None else {"topic_partitions": assignment_values(assignment)},
        }

    async def _answer(self, wanted: ShareHeartbeat) -> ShareHeartbeatAnswer:
        answer: ShareHeartbeatAnswer = await self._groups.run(
            wanted.group_id, lambda machine: partial(machine.groups.share_heartbeat, wanted)
        )
        return answer

    async def _initialized(self, group_id: str, answer: ShareHeartbeatAnswer) -> bool:
        """Begin the states that a group lacks; whether they exist now. One heartbeat of a group does it."""
        task = self._initializing.get(group_id)
        if task is None:
            task = self._initializing[group_id] = asyncio.get_running_loop().create_task(
                self._initialize(group_id, answer)
            )
            task.add_done_callback(lambda _: self._initializing.pop(group_id))
        try:
            await asyncio.shield(task)
        except ApiError as error:
            self._services.events.warning(
                "share_states_not_initialized",
                "",
                group_id=group_id,
                error=str(error),
                advice="the next heartbeat tries again; until then these partitions are not assigned",
            )
            return False
        return True

    async def _initialize(self, group_id: str, answer: ShareHeartbeatAnswer) -> None:
        await self._delete_states(group_id, answer.deleting)
        await self._begin_states(
            [
                (SharePartitionKey(group_id, topic_id, index), answer.epoch, UNINITIALIZED)
                for topic_id, found in answer.without_state.items()
                for index in found.partitions
            ]
        )
        await self._groups.run(
            group_id,
            lambda machine: partial(machine.groups.share.initialized, group_id, answer.without_state),
        )

    async def _begin_states(self, states: Iterable[tuple[SharePartitionKey, int, int]]) -> None:
        initialize = self._services.share.states.initialize
        await asyncio.gather(*(initialize(*state) for state in states))

    async def _delete_states(self, group_id: str, topics: Mapping[UUID, str]) -> None:
        """Delete the states of all partitions of these topics."""
        if not topics:
            return
        share = self._services.share
        deletions: list[Coroutine[Any, Any, None]] = []
        for topic_id in topics:
            topic = self._services.catalog.topic_by_id(topic_id)
            count = 0 if topic is None else len(topic.partitions)
            keys = (SharePartitionKey(group_id, topic_id, index) for index in range(count))
            deletions += map(share.states.delete, keys)
        await asyncio.gather(*deletions)
        await self._groups.run(
            group_id, lambda machine: partial(machine.groups.share.deleted, group_id, topics)
        )
        self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        """What is in memory of the group's partitions holds no longer."""
        partitions = self._services.share.partitions
        for held in partitions.of_group(group_id):
            partitions.drop(held)

    async def delete_all_states(self, group_id: str) -> None:
        """Before a group is deleted. Raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        topics = await self._groups.run(
            group_id, lambda machine: partial(machine.groups.share.begin_deletion, group_id, None)
        )
        await self._delete_states(group_id, topics)

    # Operators

    async def describe(
        self, context: RequestContext, request: types.ShareGroupDescribeRequest
    ) -> DictOf[types.ShareGroupDescribeResponse]:
        with_operations = request.include_authorized_operations
        groups = await self._described_groups(context, request.group_ids, self._described, with_operations)
        return {"groups": groups}

    async def _described(
        self, context: RequestContext, group_id: str
    ) -> DictOf[types.ShareGroupDescribeResponseGroup]:
        try:
            self._access.check(context, DESCRIBE_GROUP, group_id)
            group = await self._group(group_id, lambda machine: machine.groups.share.describe(group_id))
            self._check_may_describe(context, group.topics)
        except ApiError as error:
            return {"group_id": group_id, "error_code": error.code, "error_message": error.message}
        return _described(group)

    async def _group(self, group_id: str, query: Any) -> Any:
        found = await self._groups.read(group_id, query)
        if found is None:
            raise not_found(group_id)
        return found

    async def describe_offsets(
        self, context: RequestContext, request: types.DescribeShareGroupOffsetsRequest
    ) -> DictOf[types.DescribeShareGroupOffsetsResponse]:
        offsets_of = partial(self._offsets_of, context)
        groups = await self._services.turns.together(offsets_of, request.groups, Pace(), _STEP_COST_OFFSETS)
        return {"groups": groups}

    async def _offsets_of(self, context: RequestContext, asked: Any) -> Any:
        group_id = asked.group_id
        try:
            self._access.check(context, DESCRIBE_GROUP, group_id)
            group: ShareGroup = await self._group(
                group_id, lambda machine: machine.groups.share.committed(group_id)
            )
        except ApiError as error:
            return {"group_id": group_id, "error_code": error.code, "error_message": error.message}
        if asked.topics is None:
            wanted = [
                (each.name, sorted(each.partitions))
                for each in group.initialized.values()
                if self._access.shows(context, DESCRIBE_TOPIC, each.name)
            ]
        else:
            wanted = [(each.topic_name, each.partitions) for each in asked.topics]
        pace = Pace()
        offsets_in = partial(self._topic_offsets, context, group, pace)
        topics = await self._services.turns.together(offsets_in, wanted, pace)
        return {"group_id": group_id, "topics": topics}

    async def _topic_offsets(
        self, context: RequestContext, group: ShareGroup, pace: Pace, wanted: tuple[str, Sequence[int]]
    ) -> Any:
        name, indexes = wanted
        topic = self._services.catalog.topic(name)
        code = ErrorCode.NONE
        if not self._access.allows(context, DESCRIBE_TOPIC, name):
            code = DESCRIBE_TOPIC.refusal
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code or topic is None:
            failed = [
                {"partition_index": index, "start_offset": NO_OFFSET, "error_code": code} for index in indexes
            ]
            return {"topic_name": name, "topic_id": NO_UUID, "partitions": failed}
        known = group.initialized.get(topic.topic_id)

        async def offsets(index: int) -> dict[str, object]:
            if known is None or index not in known.partitions:
                return {"partition_index": index, "start_offset": NO_OFFSET, "leader_epoch": 0}
            try:
                key = SharePartitionKey(group.group_id, topic.topic_id, index)
                state = await self._services.share.states.summary(key)
                lag = await self._lag(name, index, state.start_offset, state.complete_count)
            except ApiError as error:
                return {
                    "partition_index": index,
                    "start_offset": NO_OFFSET,
                    "error_code": error.code,
                    "error_message": error.message,
                }
            return {
                "partition_index": index,
                "start_offset": state.start_offset,
                "leader_epoch": max(state.leader_epoch, 0),
                "lag": lag,
            }

        partitions = await self._services.turns.together(offsets, indexes, pace, _STEP_COST_OFFSETS)
        return {"topic_name": name, "topic_id": topic.topic_id, "partitions": partitions}

    async def _lag(self, topic: str, index: int, start_offset: int, complete_count: int) -> int:
        """How many records are to be delivered yet; -1 where that is not known."""
        if start_offset < 0 or complete_count < 0:
            return -1
        leader_id = self._services.leader_of(topic, index)
        if leader_id == self._services.node_id:
            end_offset = self._services.replica(topic, index).high_watermark
        elif leader_id < 0:
            return -1
        else:
            asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}]
            answer: types.ListOffsetsResponse = await self._services.peers.call(
                leader_id,
                ApiKey.LIST_OFFSETS,
                {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]},
            )
            found = answer.topics[0].partitions[0]
            if error_code(found.error_code):
                return -1
            end_offset = found.offset
        return max(end_offset - start_offset - complete_count, 0)

    async def alter_offsets(
        self, context: RequestContext, request: types.AlterShareGroupOffsetsRequest
    ) -> DictOf[types.AlterShareGroupOffsetsResponse]:
        group_id = request.group_id
        group: ShareGroup = await self._group(
            group_id, lambda machine: machine.groups.share.committed(group_id)
        )
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group has {len(group.members)} members")
        offsets: dict[SharePartitionKey, int] = {}
        topics: dict[UUID, StatePartitions] = {}
        responses: list[Any] = []
        pace = Pace()
        for asked in request.topics:
            if pace.spent(1 + len(asked.partitions)):
                await self._services.turns.next()
            topic = self._services.catalog.topic(asked.topic_name)
            is_allowed = self._access.allows(context, READ_TOPIC, asked.topic_name)
            partitions = []
            for one in asked.partitions:
                code = ErrorCode.NONE
                if not is_allowed:
                    code = READ_TOPIC.refusal
                elif topic is None or not topic.has_partition(one.partition_index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif one.start_offset < 0:
                    code = ErrorCode.INVALID_REQUEST
                else:
                    key = SharePartitionKey(group_id, topic.topic_id, one.partition_index)
                    offsets[key] = one.start_offset
                    known = topics.get(topic.topic_id) or StatePartitions(topic.name, frozenset())
                    topics[topic.topic_id] = known._replace(
                        partitions=known.partitions | {one.partition_index}
                    )
                partitions.append({"partition_index": one.partition_index, "error_code": code})
            topic_id = NO_UUID if topic is None or not is_allowed else topic.topic_id
            responses.append({"topic_name": asked.topic_name, "topic_id": topic_id, "partitions": partitions})
        if offsets:
            share = self._services.groups
            epoch = await share.run(
                group_id, lambda machine: partial(machine.groups.share.begin_alteration, group_id)
            )
            await self._begin_states([(key, epoch, offset) for key, offset in offsets.items()])
            await share.run(
                group_id, lambda machine: partial(machine.groups.share.initialized, group_id, topics)
            )
            self._forget(group_id)
        return {"error_code": ErrorCode.NONE, "responses": responses}

    async def delete_offsets(
        self, context: RequestContext, request: types.DeleteShareGroupOffsetsRequest
    ) -> DictOf[types.DeleteShareGroupOffsetsResponse]:
        group_id = request.group_id
        group: ShareGroup = await self._group(
            group_id, lambda machine: machine.groups.share.committed(group_id)
        )
        wanted: list[UUID] = []
        responses: list[Any] = []
        pace = Pace()
        for asked in request.topics:
            if pace.spent():
                await self._services.turns.next()
            name = asked.topic_name
            topic = self._services.catalog.topic(name)
            answer: dict[str, object] = {"topic_name": name, "topic_id": NO_UUID}
            if not self._access.allows(context, READ_TOPIC, name):
                answer["error_code"] = READ_TOPIC.refusal
            elif topic is None or topic.topic_id not in (*group.initialized, *group.states.deleting):
                answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer["error_message"] = "There is no offset information to delete."
            else:
                answer["topic_id"] = topic.topic_id
                wanted.append(topic.topic_id)
            responses.append(answer)
        topics = await self._groups.run(
            group_id, lambda machine: partial(machine.groups.share.begin_deletion, group_id, wanted)
        )
        await self._delete_states(group_id, topics)
        return {"error_code": ErrorCode.NONE, "responses": responses}


def _described(group: DescribedShareGroup) -> DictOf[types.ShareGroupDescribeResponseGroup]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": ASSIGNOR,
        "members": [
            {
                "member_id": each.member_id,
                "rack_id": each.member.rack_id,
                "member_epoch": each.epoch,
                "client_id": each.member.client_id,
                "client_host": each.member.client_host,
                "subscribed_topic_names": list(each.member.topic_names),
                "assignment": {
                    "topic_partitions": [
                        {
                            "topic_id": topic_id,
                            "topic_name": group.topics.get(topic_id, ""),
                            "partitions": sorted(partitions),
                        }
                        for topic_id, partitions in each.assigned.items()
                    ]
                },
            }
            for each in group.members
        ],
    }
