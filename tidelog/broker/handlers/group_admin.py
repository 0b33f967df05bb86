"""DescribeGroups, ListGroups and DeleteGroups: the administration of groups.

Owns the three answers. Invariants: a group that is named several times is answered once; a group that has
only committed offsets is a group without members.

Versions: DescribeGroups has authorized operations from 3 on; up to 5 an unknown group is Dead, from 6 on it
is refused. ListGroups filters by states from 4 on, by types from 5 on. Source: Kafka's KafkaApis and
GroupCoordinatorService, KIP-430 (authorized operations), KIP-518 and KIP-848 (filters), KIP-1043
(GROUP_ID_NOT_FOUND).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.broker.coordinator.groups.messages import DescribedGroup
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.handlers.access_control import ELEMENTS_PER_GROUP, GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, each

_NOT_FOUND_FROM = 6


class GroupAdminHandler(GuardedHandler):
    """Serves DescribeGroups 0-6, ListGroups 0-5 and DeleteGroups 0-2."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._groups = services.groups

    async def describe_groups(
        self, context: RequestContext, request: types.DescribeGroupsRequest
    ) -> DictOf[types.DescribeGroupsResponse]:
        with_operations = request.include_authorized_operations
        groups = await self._described_groups(context, request.groups, self._described, with_operations)
        return {"groups": groups}

    async def _described(
        self, context: RequestContext, group_id: str
    ) -> DictOf[types.DescribeGroupsResponseGroup]:
        version = context.header.api_version
        try:
            self._access.check(context, DESCRIBE_GROUP, group_id)
            group = await self._groups.read(group_id, lambda machine: machine.describe(group_id))
        except ApiError as error:
            return {"group_id": group_id, "error_code": error.code, **_message(error.message, version)}
        group = group or DescribedGroup(group_id, GroupState.DEAD, "", "", ())
        if group.state is GroupState.DEAD and version >= _NOT_FOUND_FROM:
            return {
                "group_id": group_id,
                "group_state": group.state.value,
                "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
                **_message(f"group {group_id} does not exist", version),
            }
        return _group(group)

    async def list_groups(
        self, context: RequestContext, request: types.ListGroupsRequest
    ) -> DictOf[types.ListGroupsResponse]:
        states = await self._filter(request.states_filter)
        kinds = await self._filter(request.types_filter)
        pace = Pace()
        groups: list[DictOf[types.ListGroupsResponseGroup]] = []
        code = ErrorCode.NONE
        shows_all = self._access.shows(context, DESCRIBE_CLUSTER, CLUSTER_NAME)
        async for listed in self._groups.listed():
            if isinstance(listed, ApiError):
                code = listed.code
            elif (
                (not states or listed.state.lower() in states)
                and (not kinds or listed.type in kinds)
                and (shows_all or self._access.shows(context, DESCRIBE_GROUP, listed.group_id))
            ):
                groups.append(
                    {
                        "group_id": listed.group_id,
                        "protocol_type": listed.protocol_type,
                        "group_state": listed.state,
                        "group_type": listed.type,
                    }
                )
            if pace.spent():
                await self._services.turns.next()
        return {"error_code": code, "groups": groups}

    async def _filter(self, names: Sequence[str]) -> frozenset[str]:
        return frozenset(await self._services.turns.run(each(str.lower, names, Pace())))

    async def delete_groups(
        self, context: RequestContext, request: types.DeleteGroupsRequest
    ) -> DictOf[types.DeleteGroupsResponse]:
        results: list[DictOf[types.DeleteGroupsResponseResult]] = []
        pace = Pace()
        for group_id in dict.fromkeys(request.groups_names):
            results.append({"group_id": group_id, "error_code": await self._delete(context, group_id)})
            if pace.spent(ELEMENTS_PER_GROUP):
                await self._services.turns.next()
        return {"results": results}

    async def _delete(self, context: RequestContext, group_id: str) -> ErrorCode:
        if not self._access.allows(context, DELETE_GROUP, group_id):
            return DELETE_GROUP.refusal
        if not self._groups.has_topic:
            return ErrorCode.GROUP_ID_NOT_FOUND
        try:
            await self._delete_states(group_id)
            # Its offsets first, in batches.
            while await self._groups.run(group_id, lambda machine: partial(machine.delete_some, group_id)):
                pass
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def _delete_states(self, group_id: str) -> None:
        """Of a share group, the states of its partitions. Raises ApiError."""
        if await self._groups.read(group_id, lambda machine: machine.groups.share.committed(group_id)):
            from tidelog.broker.handlers.share_groups import ShareGroupsHandler

            await ShareGroupsHandler(self._services).delete_all_states(group_id)


def _message(message: str, version: int) -> DictOf[types.DescribeGroupsResponseGroup]:
    return {"error_message": message} if version >= _NOT_FOUND_FROM else {}


def _group(group: DescribedGroup) -> DictOf[types.DescribeGroupsResponseGroup]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }
