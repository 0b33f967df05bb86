"""OffsetFetch and OffsetDelete: the committed offsets of groups.

A fetch returns no offset that a crash could undo. librdkafka expects every coordinator to serve OffsetFetch:
without it, the process of the client ends.

Invariants: each group of a fetch is answered with its topics and partitions as they were requested, each
once; a topic that is unknown by name has no committed offsets, as in Kafka, one that is unknown by id has
UNKNOWN_TOPIC_ID.

Versions: OffsetFetch asks for all topics from 2 on, with require_stable from 7 on, for several groups from 8
on, as a member from 9 on, and for topics by id from 10 on. With KIP-447's require_stable, a partition whose
offset an open transaction may replace has UNSTABLE_OFFSET_COMMIT. Source: Kafka's KafkaApis and
OffsetMetadataManager, KIP-211, KIP-496, KIP-709, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import cast
from uuid import UUID

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.coordinator.decision import Operation
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.offsets.committed_offsets import is_of
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.by_topic import answers_by_topic
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, each
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET

_SEVERAL_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_MemberEpoch = tuple[str | None, int]
"""The id and the epoch by which a member reads the offsets of its group."""
_NO_MEMBER: _MemberEpoch = (None, -1)
_Held = Mapping[str, Mapping[int, CommittedOffset]]
_Unstable = Collection[tuple[str, int]]


class GroupOffsetsHandler(GuardedHandler):
    """Serves OffsetFetch 1-10 and OffsetDelete 0."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._groups = services.groups
        self._catalog = services.catalog

    async def offset_fetch(
        self, context: RequestContext, request: types.OffsetFetchRequest
    ) -> DictOf[types.OffsetFetchResponse]:
        """An answer for each group, or for the one that older versions name."""
        by_id = context.header.api_version >= _TOPIC_IDS_FROM
        if context.header.api_version < _SEVERAL_GROUPS_FROM:
            self._access.check(context, DESCRIBE_GROUP, request.group_id)
            unstable = await self._unstable(request, request.group_id)
            # They have all fields that are read without topic ids.
            asked = cast("list[types.OffsetFetchRequestGroupTopic] | None", request.topics)
            return {"topics": await self._group(context, request.group_id, asked, unstable)}
        pace = Pace()
        wanted: dict[str, list[types.OffsetFetchRequestGroupTopic] | None] = {}
        members: dict[str, _MemberEpoch] = {}
        for group in request.groups:
            members.setdefault(group.group_id, (group.member_id, group.member_epoch))
            present = wanted.setdefault(group.group_id, [])
            if group.topics is None or present is None:
                wanted[group.group_id] = None
            else:
                present.extend(group.topics)
            if pace.spent():
                await self._services.turns.next()
        groups: list[DictOf[types.OffsetFetchResponseGroup]] = []
        for group_id, topics in wanted.items():
            answer: DictOf[types.OffsetFetchResponseGroup] = {"group_id": group_id}
            try:
                self._access.check(context, DESCRIBE_GROUP, group_id)
                unstable = await self._unstable(request, group_id)
                member = members[group_id]
                answer["topics"] = await self._group(context, group_id, topics, unstable, member, by_id=by_id)
            except ApiError as error:
                answer["error_code"] = error.code
            groups.append(answer)
            await self._services.turns.next()
        return {"groups": groups}

    async def _unstable(self, request: types.OffsetFetchRequest, group_id: str) -> _Unstable:
        """What open transactions may replace, if the request wants to know. Raises ApiError.

        It is asked for before the offsets: if a transaction ends between the two, its outcome is in them.
        """
        if not request.require_stable:
            return ()
        return await self._groups.read(group_id, lambda machine: machine.offsets.unstable(group_id)) or ()

    async def _group(
        self,
        context: RequestContext,
        group_id: str,
        topics: Sequence[types.OffsetFetchRequestGroupTopic] | None,
        unstable: _Unstable,
        member: _MemberEpoch = _NO_MEMBER,
        *,
        by_id: bool = False,
    ) -> list[DictOf[types.OffsetFetchResponseGroupTopic]]:
        """The committed offsets of the group in these topics (None: in all); each topic names its partitions.

        Raises ApiError.
        """
        turns = self._services.turns
        if topics is None:
            held = await self._held(group_id, None, member)
            return await turns.run(self._all_committed(context, held, unstable, by_id=by_id))
        wanted = await turns.run(self._wanted(topics, by_id=by_id))
        names = [topic.name for topic, _ in wanted.values() if topic]
        held = await self._held(group_id, names, member)
        return await turns.run(self._committed(context, wanted, held, unstable, by_id=by_id))

    async def _held(self, group_id: str, names: Sequence[str] | None, member: _MemberEpoch) -> _Held:
        found = await self._groups.read(
            group_id, lambda machine: machine.offsets.fetch(group_id, names, *member)
        )
        return found or {}

    def _wanted(
        self, topics: Sequence[types.OffsetFetchRequestGroupTopic], *, by_id: bool
    ) -> Steps[dict[str | UUID, tuple[Topic | None, dict[int, None]]]]:
        """Name or id -> the topic that has it now, and the requested partitions, each once."""
        pace = Pace()
        wanted: dict[str | UUID, tuple[Topic | None, dict[int, None]]] = {}
        for asked in topics:
            key: str | UUID = asked.topic_id if by_id else asked.name
            if key not in wanted:
                wanted[key] = (
                    self._catalog.topic_by_id(asked.topic_id) if by_id else self._catalog.topic(asked.name),
                    {},
                )
            wanted[key][1].update(dict.fromkeys(asked.partition_indexes))
            if pace.spent(1 + len(asked.partition_indexes) // NUMBERS_PER_ELEMENT):
                yield
        return wanted

    def _committed(
        self,
        context: RequestContext,
        wanted: Mapping[str | UUID, tuple[Topic | None, dict[int, None]]],
        held: _Held,
        unstable: _Unstable,
        *,
        by_id: bool,
    ) -> Steps[list[DictOf[types.OffsetFetchResponseGroupTopic]]]:
        pace = Pace()
        answers: list[DictOf[types.OffsetFetchResponseGroupTopic]] = []
        for key, (topic, indexes) in wanted.items():
            committed = {} if topic is None else held.get(topic.name, {})
            topic_id = None if topic is None else topic.topic_id
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.NONE
            name = topic.name if topic is not None else "" if by_id else str(key)
            if name and not self._access.allows_offsets(context, DESCRIBE_TOPIC, name):
                topic, committed, code = None, {}, DESCRIBE_TOPIC.refusal

            def answer(index: int) -> DictOf[types.OffsetFetchResponsePartition]:
                if topic is not None and (topic.name, index) in unstable:  # noqa: B023 (called in this turn)
                    return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                found = committed.get(index)  # noqa: B023
                if found is None or not is_of(found, topic_id):  # noqa: B023
                    return _nothing(index, code)  # noqa: B023
                return _committed(index, found)

            partitions = yield from each(answer, indexes, pace)
            if isinstance(key, UUID):
                answers.append({"topic_id": key, "partitions": partitions})
            else:
                answers.append({"name": key, "partitions": partitions})
            if pace.spent():
                yield
        return answers

    def _all_committed(
        self, context: RequestContext, held: _Held, unstable: _Unstable, *, by_id: bool
    ) -> Steps[list[DictOf[types.OffsetFetchResponseGroupTopic]]]:
        pace = Pace()
        answers: list[DictOf[types.OffsetFetchResponseGroupTopic]] = []
        # Also what has no committed offset before the transaction's: a reader must not take it for none.
        places = {name: dict.fromkeys(committed) for name, committed in held.items()}
        for name, index in unstable:
            places.setdefault(name, {})[index] = None
        for name, indexes in places.items():
            if not self._access.shows_offsets(context, DESCRIBE_TOPIC, name):
                continue
            topic = self._catalog.topic(name)
            topic_id = None if topic is None else topic.topic_id
            partitions: list[DictOf[types.OffsetFetchResponsePartition]] = []
            for index in indexes:
                if (name, index) in unstable:
                    partitions.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                elif is_of(held[name][index], topic_id):
                    partitions.append(_committed(index, held[name][index]))
                if pace.spent():
                    yield
            if partitions:
                if not by_id:
                    answers.append({"name": name, "partitions": partitions})
                elif topic is not None:
                    answers.append({"topic_id": topic.topic_id, "partitions": partitions})
        return answers

    async def offset_delete(
        self, context: RequestContext, request: types.OffsetDeleteRequest
    ) -> DictOf[types.OffsetDeleteResponse]:
        turns = self._services.turns
        if not self._groups.has_topic:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        wanted = await turns.run(self._to_delete(request.topics))

        def delete(machine: GroupMachine) -> Operation[Mapping[str, ErrorCode]]:
            return machine.offsets.delete(request.group_id, [(name, wanted[name]) for name in known])

        allows = partial(self._access.allows, context, READ_TOPIC)
        allowed = await turns.run(each(allows, wanted, Pace()))
        denied = {name for name, is_allowed in zip(wanted, allowed, strict=True) if not is_allowed}
        topics = await turns.run(each(self._catalog.topic, wanted, Pace()))
        known = [topic.name for topic in topics if topic is not None and topic.name not in denied]
        codes = await self._groups.run(request.group_id, delete)
        codes = {**codes, **dict.fromkeys(denied, READ_TOPIC.refusal)}

        def answer(name: str, index: int) -> DictOf[types.PartitionError]:
            code = codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return {"partition_index": index, "error_code": code}

        deleted = await turns.run(answers_by_topic(wanted.items(), answer, Pace()))
        return {"error_code": ErrorCode.NONE, "topics": deleted}

    def _to_delete(
        self, topics: Sequence[types.OffsetDeleteRequestTopic]
    ) -> Steps[dict[str, dict[int, None]]]:
        """Topic -> the partitions that are named, each once."""
        pace = Pace()
        wanted: dict[str, dict[int, None]] = {}
        for topic in topics:
            indexes = wanted.setdefault(topic.name, {})
            for partition in topic.partitions:
                indexes[partition.partition_index] = None
                if pace.spent():
                    yield
            if pace.spent():
                yield
        return wanted


def _committed(index: int, committed: CommittedOffset) -> DictOf[types.OffsetFetchResponsePartition]:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": ErrorCode.NONE,
    }


def _nothing(index: int, code: ErrorCode) -> DictOf[types.OffsetFetchResponsePartition]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": code,
    }
