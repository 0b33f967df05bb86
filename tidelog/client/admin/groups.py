"""Administration of groups: their list, their members, their offsets.

Owns: the requests of `Admin.groups`. Invariant: a call does everything that was requested, or it raises.
Source: KIP-222, KIP-396 (offsets of groups), KIP-848 (groups of the consumer protocol), KIP-932
(share groups).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tidelog.client.admin.requests import Requests, partitions_of
from tidelog.client.admin.types import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    ShareOffset,
)
from tidelog.client.arguments import list_of_names
from tidelog.client.asked_apis import LAST_BY_NAME
from tidelog.client.coordinators import GROUP
from tidelog.client.types import OffsetAndMetadata, commits_by_topic
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_OFFSET, TopicPartition

_DEAD = "Dead"
_LAST_OF_ONE_GROUP = 7
"""From the next version of OffsetFetch on, it names a list of groups."""


class GroupAdmin:
    """The groups of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._of = partial(requests.to_coordinator, GROUP)

    async def list(self) -> list[GroupListing]:
        """All groups, sorted by id. Raises LEADER_NOT_AVAILABLE if the coordinator of some of them is
        unavailable."""
        found = []
        answer: types.ListGroupsResponse
        async for answer in self._requests.to_coordinators(
            GROUP, ApiKey.LIST_GROUPS, {}, lambda _: "the list of groups"
        ):
            found += [
                GroupListing(each.group_id, each.group_state, each.protocol_type, each.group_type.lower())
                for each in answer.groups
            ]
        return sorted(found)

    async def describe(self, group_id: str) -> GroupDescription:
        """A group's state and members. An unknown group is Dead and has no members."""
        group = await self._describe_classic(group_id)
        if group.state == _DEAD:
            consumer = await self._describe_of(group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, "consumer")
            return (
                consumer or await self._describe_of(group_id, ApiKey.SHARE_GROUP_DESCRIBE, "share") or group
            )
        return group

    async def _describe_of(self, group_id: str, api_key: ApiKey, kind: str) -> GroupDescription | None:
        """None if the group is of another kind, or the broker has no such groups."""
        if not (await self._requests.coordinator(GROUP, group_id)).supports(api_key):
            return None

        def results(answer: Any) -> "list[types.ConsumerGroupDescribeResponseGroup]":
            return [each for each in answer.groups if each.error_code != ErrorCode.GROUP_ID_NOT_FOUND]

        answer = await self._of(group_id, api_key, {"group_ids": [group_id]}, results)
        for group in results(answer):
            members = tuple(
                GroupMember(
                    each.member_id, getattr(each, "instance_id", None), each.client_id, each.client_host
                )
                for each in group.members
            )
            return GroupDescription(
                group.group_id, group.group_state, kind, group.assignor_name, members, kind
            )
        return None

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        answer: types.DescribeGroupsResponse = await self._of(
            group_id, ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]}, lambda answer: answer.groups
        )
        (group,) = answer.groups
        members = tuple(
            GroupMember(each.member_id, each.group_instance_id, each.client_id, each.client_host)
            for each in group.members
        )
        return GroupDescription(
            group.group_id, group.group_state, group.protocol_type, group.protocol_data, members
        )

    async def offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of the group, by topic and partition. With `require_stable` it waits for
        transactions that may replace one."""

        def results(
            answer: "types.OffsetFetchResponse",
        ) -> "list[types.OffsetFetchResponse | types.OffsetFetchResponsePartition]":
            return [answer, *(each for topic in answer.topics for each in topic.partitions)]

        values: DictOf[types.OffsetFetchRequest] = {
            "group_id": group_id,
            "topics": None,
            "require_stable": require_stable,
        }
        answer: types.OffsetFetchResponse = await self._of(
            group_id, ApiKey.OFFSET_FETCH, values, results, at_most=lambda _: _LAST_OF_ONE_GROUP
        )
        return {
            TopicPartition(topic.name, each.partition_index): CommittedOffset(
                each.committed_offset, each.committed_leader_epoch, each.metadata or ""
            )
            for topic in sorted(answer.topics, key=lambda topic: str(topic.name))
            for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
            if each.committed_offset != NO_OFFSET
        }

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets for a group. Raises UNKNOWN_MEMBER_ID if it has members."""
        by_topic = commits_by_topic({key: OffsetAndMetadata(offset) for key, offset in offsets.items()})
        topics: list[DictOf[types.OffsetCommitRequestTopic]] = [
            {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
        ]
        values: DictOf[types.OffsetCommitRequest] = {"group_id": group_id, "topics": topics}
        at_most = LAST_BY_NAME[ApiKey.OFFSET_COMMIT]
        await self._of(group_id, ApiKey.OFFSET_COMMIT, values, partitions_of, at_most=lambda _: at_most)

    async def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Where a share group is, by topic and partition."""

        def results(answer: "types.DescribeShareGroupOffsetsResponse") -> list[object]:
            groups = answer.groups
            partitions = [each for group in groups for topic in group.topics for each in topic.partitions]
            return [*groups, *partitions]

        values: DictOf[types.DescribeShareGroupOffsetsRequest] = {
            "groups": [{"group_id": group_id, "topics": None}]
        }
        answer: types.DescribeShareGroupOffsetsResponse = await self._of(
            group_id, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, values, results
        )
        return {
            TopicPartition(topic.topic_name, each.partition_index): ShareOffset(
                each.start_offset, each.leader_epoch, each.lag
            )
            for group in answer.groups
            for topic in sorted(group.topics, key=lambda topic: topic.topic_name)
            for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
            if each.start_offset != NO_OFFSET
        }

    async def alter_share_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group begin at these offsets. Raises NON_EMPTY_GROUP if it has members."""
        by_topic: dict[str, list[DictOf[types.AlterShareGroupOffsetsRequestPartition]]] = {}
        for where, offset in offsets.items():
            by_topic.setdefault(where.topic, []).append(
                {"partition_index": where.partition, "start_offset": offset}
            )
        values: DictOf[types.AlterShareGroupOffsetsRequest] = {
            "group_id": group_id,
            "topics": [{"topic_name": name, "partitions": each} for name, each in by_topic.items()],
        }
        await self._of(
            group_id,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            values,
            lambda answer: [answer, *(each for topic in answer.responses for each in topic.partitions)],
        )

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget where a share group is in these topics. Raises NON_EMPTY_GROUP if it has members."""
        values: DictOf[types.DeleteShareGroupOffsetsRequest] = {
            "group_id": group_id,
            "topics": [{"topic_name": name} for name in list_of_names(topics, "topics")],
        }
        await self._of(
            group_id, ApiKey.DELETE_SHARE_GROUP_OFFSETS, values, lambda answer: [answer, *answer.responses]
        )

    async def delete(self, group_ids: Iterable[str]) -> None:
        """Delete groups with all their committed offsets. Raises NON_EMPTY_GROUP if one has members."""
        for group_id in list_of_names(group_ids, "group_ids"):
            values: DictOf[types.DeleteGroupsRequest] = {"groups_names": [group_id]}
            await self._of(group_id, ApiKey.DELETE_GROUPS, values, lambda answer: answer.results)
