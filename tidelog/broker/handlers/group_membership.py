"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the requests of group members.

Owns the conversion between the wire and the machine of groups, and the ids of new members. A join, or a sync
of a member that does not lead, may wait for other members for as long as a rebalance takes; the memory that
it holds meanwhile is counted.

Invariant: everything that the machine keeps of a request is a copy.

Versions: JoinGroup 0 has one timeout for sessions and rebalances; from 4 on a new member gets its id first
and joins again with it, from 5 on members may be static, from 9 on a leader that joins again keeps the
assignment. SyncGroup checks the protocol from 5 on. LeaveGroup removes several members from 3 on. Source:
Kafka's KafkaApis and GroupCoordinatorService, KIP-345, KIP-394, KIP-559, KIP-814.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import uuid4

from tidelog.broker.coordinator.decision import Operation, ResponseT
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.groups.group import Protocol
from tidelog.broker.coordinator.groups.joining import MAX_PROTOCOLS
from tidelog.broker.coordinator.groups.messages import JoinAnswer, JoinRequest, MemberIdentity, SyncRequest
from tidelog.broker.handlers.context import LateAnswer, RequestContext
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each

_KNOWN_MEMBER_IDS_FROM = 4
_NULL_PROTOCOLS_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9
_BATCHED_LEAVE_FROM = 3
_LEAVING_AT_ONCE = 500
_ELEMENT_BYTES = 500
"""Memory of one protocol or assignment of a waiting request, without its bytes."""


class GroupMembershipHandler:
    """Serves JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4 and LeaveGroup 0-5."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._groups = services.groups

    def join_group(self, context: RequestContext, request: types.JoinGroupRequest) -> Steps[LateAnswer]:
        # One more than allowed is enough to have the request refused.
        protocols = yield from each(
            lambda sent: Protocol(sent.name, sent.metadata), request.protocols[: MAX_PROTOCOLS + 1], Pace()
        )
        held_bytes = sum(_ELEMENT_BYTES + len(known.metadata) for known in protocols)
        return LateAnswer.of(self._join(context, request, tuple(protocols)), held_bytes)

    async def _join(
        self, context: RequestContext, request: types.JoinGroupRequest, protocols: tuple[Protocol, ...]
    ) -> DictOf[types.JoinGroupResponse]:
        version = context.header.api_version
        wanted = _join_request(context, request, protocols)
        await self._groups.make_topic()
        answer = await self._waiting(request.group_id, lambda machine: partial(machine.groups.join, wanted))
        if answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_MAX_SIZE_REACHED):
            self._warn_refused(context, request, answer)
        return _join_answer(answer, version)

    def _warn_refused(
        self, context: RequestContext, request: types.JoinGroupRequest, answer: JoinAnswer
    ) -> None:
        self._services.events.warning(
            "group_join_refused",
            context.connection.client_host,
            group_id=request.group_id,
            client_id=context.header.client_id,
            client_host=context.connection.client_host,
            error=answer.error_code.name,
            advice="the group has group.max.size members, all groups together hold groups.max.bytes, or "
            "the member's metadata does not fit into a group's record",
        )

    def sync_group(self, context: RequestContext, request: types.SyncGroupRequest) -> Steps[LateAnswer]:
        assignments = dict(
            (yield from each(lambda one: (one.member_id, one.assignment), request.assignments, Pace()))
        )
        sizes = yield from each(len, assignments.values(), Pace(CHECKS_PER_STEP))
        held_bytes = _ELEMENT_BYTES * len(sizes) + sum(sizes)
        return LateAnswer.of(self._sync(context, request, assignments), held_bytes)

    async def _sync(
        self, context: RequestContext, request: types.SyncGroupRequest, assignments: dict[str, bytes]
    ) -> DictOf[types.SyncGroupResponse]:
        wanted = SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            assignments,
        )
        try:
            answer = await self._waiting(
                request.group_id, lambda machine: partial(machine.groups.sync, wanted)
            )
        except ApiError as error:
            if error.code != ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise
            self._services.events.error(
                "group_assignment_too_large",
                context.connection.client_host,
                group_id=request.group_id,
                client_id=context.header.client_id,
                error=str(error),
                advice="the members' metadata and assignments together must fit into one record: raise "
                "message.max.bytes, or use fewer members or partitions",
            )
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
        return {
            "error_code": answer.error_code,
            "protocol_type": answer.protocol_type,
            "protocol_name": answer.protocol,
            "assignment": answer.assignment,
        }

    async def _waiting(
        self, group_id: str, operation: Callable[[GroupMachine], Operation[ResponseT]]
    ) -> ResponseT:
        """The answer of an operation that may be parked. A stop of the broker ends the wait."""
        try:
            return await self._groups.run(group_id, operation)
        except asyncio.CancelledError:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "the broker is stopping") from None

    async def heartbeat(
        self, context: RequestContext, request: types.HeartbeatRequest
    ) -> DictOf[types.HeartbeatResponse]:
        def operation(machine: GroupMachine) -> Operation[ErrorCode]:
            return partial(
                machine.groups.heartbeat,
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
            )

        try:
            code = await self._groups.run(request.group_id, operation)
        except ApiError as error:
            if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # No member expires while the log is replayed, and old clients do not know an error for that.
                return {"error_code": ErrorCode.NONE}
            raise
        return {"error_code": code}

    def leave_group(
        self, context: RequestContext, request: types.LeaveGroupRequest
    ) -> Steps[Awaitable[DictOf[types.LeaveGroupResponse]]]:
        if context.header.api_version < _BATCHED_LEAVE_FROM:
            return self._leave_alone(request.group_id, MemberIdentity(request.member_id, None))
        leaving = yield from each(
            lambda sent: MemberIdentity(sent.member_id, sent.group_instance_id), request.members, Pace()
        )
        return self._leave(request.group_id, leaving)

    async def _leave_alone(self, group_id: str, identity: MemberIdentity) -> DictOf[types.LeaveGroupResponse]:
        (code,) = await self._leave_some(group_id, [identity])
        return {"error_code": code}

    async def _leave(self, group_id: str, leaving: list[MemberIdentity]) -> DictOf[types.LeaveGroupResponse]:
        if not group_id:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        members: list[DictOf[types.LeaveGroupResponseMember]] = []
        for first in range(0, len(leaving), _LEAVING_AT_ONCE):
            some = leaving[first : first + _LEAVING_AT_ONCE]
            codes = await self._leave_some(group_id, some)
            members += (
                {
                    "member_id": identity.member_id,
                    "group_instance_id": identity.group_instance_id,
                    "error_code": code,
                }
                for identity, code in zip(some, codes, strict=True)
            )
            await self._services.turns.next()
        return {"error_code": ErrorCode.NONE, "members": members}

    async def _leave_some(self, group_id: str, leaving: list[MemberIdentity]) -> list[ErrorCode]:
        return await self._groups.run(
            group_id, lambda machine: partial(machine.groups.leave, group_id, leaving)
        )


def _join_request(
    context: RequestContext, request: types.JoinGroupRequest, protocols: tuple[Protocol, ...]
) -> JoinRequest:
    version = context.header.api_version
    client_id = context.header.client_id or ""
    timeout_ms = request.rebalance_timeout_ms
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        new_member_id=f"{request.group_instance_id or client_id}-{uuid4()}",
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has one timeout for both. kafkajs sends 0 if none is set, in which no member could join.
        rebalance_timeout_ms=timeout_ms if timeout_ms > 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        client_id=client_id,
        client_host=f"/{context.connection.client_host}",
        requires_known_member_id=version >= _KNOWN_MEMBER_IDS_FROM,
        can_skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM,
    )


def _join_answer(answer: JoinAnswer, version: int) -> DictOf[types.JoinGroupResponse]:
    no_protocol = None if version >= _NULL_PROTOCOLS_FROM else ""
    return {
        "error_code": answer.error_code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": no_protocol if answer.protocol is None else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
