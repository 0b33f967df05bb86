"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol.

Owns the conversion between the wire and the machine of these groups. Invariants: everything that the machine
keeps of a request is a copy; a regular expression is matched in steps before the request reaches the machine.

Versions: from heartbeat 1 on, members make their ids themselves (KIP-1082) and may subscribe by a regular
expression; a description has the type of each member from 1 on. Source: Kafka's KafkaApis and
GroupCoordinatorService, KIP-848, KIP-1099 (type of a member).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID, uuid4

from tidelog.broker.coordinator.consumer_groups.group import JOINING_EPOCH, Assignment
from tidelog.broker.coordinator.consumer_groups.messages import (
    DescribedConsumerGroup,
    HeartbeatAnswer,
    MemberHeartbeat,
)
from tidelog.broker.coordinator.consumer_groups.records import assignment_values
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import DESCRIBE_GROUP, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, each

_MEMBERS_CHOOSE_IDS_FROM = 1
_LIMITS = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


class ConsumerGroupsHandler(GuardedHandler):
    """Serves ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._groups = services.groups
        self._is_enabled = "consumer" in services.config.group_coordinator_rebalance_protocols

    async def heartbeat(
        self, context: RequestContext, request: types.ConsumerGroupHeartbeatRequest
    ) -> DictOf[types.ConsumerGroupHeartbeatResponse]:
        if not self._is_enabled:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols does not have consumer: use group.protocol=classic",
            )
        wanted = _heartbeat(context, request, await self._services.turns.run(_owned(request)))
        sees = None
        if self._access.is_on:
            check = partial(self._access.check, context, DESCRIBE_TOPIC)
            await self._services.turns.run(each(check, wanted.topic_names or (), Pace()))
            sees = self._access.seen_by(context, DESCRIBE_TOPIC)
        if wanted.topic_regex:
            wanted = wanted._replace(regex=await self._groups.resolve(wanted.topic_regex, sees))
        if wanted.member_epoch == JOINING_EPOCH:
            await self._groups.make_topic()
        answer = await self._answer(context, wanted)
        if sees is not None:
            self._groups.seen_by(wanted.group_id, sees)
        if wanted.regex is not None and wanted.regex.revision != self._services.catalog.revision:
            self._groups.refresh_soon()  # Topics were created while the expression was matched.
        assignment = answer.assignment
        return {
            "error_code": ErrorCode.NONE,
            "member_id": answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval_ms": answer.heartbeat_interval_ms,
            "assignment": None if assignment is None else {"topic_partitions": assignment_values(assignment)},
        }

    async def _answer(self, context: RequestContext, wanted: MemberHeartbeat) -> HeartbeatAnswer:
        try:
            answer: HeartbeatAnswer = await self._groups.run(
                wanted.group_id, lambda machine: partial(machine.groups.consumer_heartbeat, wanted)
            )
        except ApiError as error:
            if error.code in _LIMITS:
                self._services.events.warning(
                    "group_join_refused",
                    context.connection.client_host,
                    group_id=wanted.group_id,
                    client_id=wanted.client_id,
                    client_host=context.connection.client_host,
                    error=str(error),
                    advice="the group has group.consumer.max.size members, all groups together hold "
                    "groups.max.bytes, or the change of the group does not fit into message.max.bytes",
                )
            if error.code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            raise
        return answer

    async def describe(
        self, context: RequestContext, request: types.ConsumerGroupDescribeRequest
    ) -> DictOf[types.ConsumerGroupDescribeResponse]:
        with_operations = request.include_authorized_operations
        groups = await self._described_groups(context, request.group_ids, self._described, with_operations)
        return {"groups": groups}

    async def _described(
        self, context: RequestContext, group_id: str
    ) -> DictOf[types.ConsumerGroupDescribeResponseGroup]:
        if not self._access.allows(context, DESCRIBE_GROUP, group_id):
            return {"group_id": group_id, "error_code": DESCRIBE_GROUP.refusal}
        try:
            group = await self._groups.read(
                group_id, lambda machine: machine.groups.consumer.describe(group_id)
            )
            if group is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            self._check_may_describe(context, group.topics)
        except ApiError as error:
            return {"group_id": group_id, "error_code": error.code, "error_message": error.message}
        return await self._services.turns.run(_described(group))


def _owned(request: types.ConsumerGroupHeartbeatRequest) -> Steps[Assignment | None]:
    if request.topic_partitions is None:
        return None
    pace = Pace()
    owned: dict[UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        if topic.partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
        if pace.spent(1 + len(topic.partitions) // NUMBERS_PER_ELEMENT):
            yield
    return owned


def _heartbeat(
    context: RequestContext, request: types.ConsumerGroupHeartbeatRequest, owned: Assignment | None
) -> MemberHeartbeat:
    member_id = request.member_id
    is_new = not member_id and request.member_epoch == JOINING_EPOCH
    if is_new and context.header.api_version < _MEMBERS_CHOOSE_IDS_FROM:
        member_id = str(uuid4())
    names = request.subscribed_topic_names
    return MemberHeartbeat(
        request.group_id,
        member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        context.header.client_id or "",
        f"/{context.connection.client_host}",
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
    )


def _described(group: DescribedConsumerGroup) -> Steps[DictOf[types.ConsumerGroupDescribeResponseGroup]]:
    pace = Pace()
    members: list[DictOf[types.ConsumerGroupDescribeResponseMember]] = []
    for member in group.members:
        assignments = (member.assigned, member.target)
        members.append(
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "rack_id": member.rack_id,
                "member_epoch": member.member_epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": list(member.topic_names),
                "subscribed_topic_regex": member.topic_regex,
                "assignment": {"topic_partitions": list(_named(member.assigned, group.topics))},
                "target_assignment": {"topic_partitions": list(_named(member.target, group.topics))},
                "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
            }
        )
        count = sum(len(partitions) for assigned in assignments for partitions in assigned.values())
        if pace.spent(1 + count // NUMBERS_PER_ELEMENT):
            yield
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": members,
    }


def _named(assignment: Assignment, names: Mapping[UUID, str]) -> Iterable[DictOf[types.NamedTopicPartitions]]:
    """Topics that were deleted have no name, and are left out."""
    for topic_id, partitions in assignment.items():
        if topic_id in names:
            yield {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": sorted(partitions)}
