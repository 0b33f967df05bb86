"""The committed offsets of a group, as one consumer reads and writes them.

Owns: OffsetCommit and OffsetFetch, and their repetition. Invariants: a commit is sent as the member that owns
the partitions; once one of them was given up, it fails, because another member may have committed since. An
offset is committed and fetched for the topic of an id, if the cluster has ids: no position in a deleted topic
becomes one in a later topic of its name. Errors that concern the membership are passed to it.
Source: Kafka's ConsumerCoordinator, KIP-447 for unstable offsets, KIP-848 for topic ids.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.client.asked_apis import LAST_BY_NAME
from tidelog.client.errors import CommitFailedError
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.coordinator import GroupCoordinator
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.steps import MOVED, Identity
from tidelog.client.retries import Retries
from tidelog.client.types import OffsetAndMetadata, commits_by_topic
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_OFFSET, TopicPartition
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import ClientError, broker_error
from tidelog.wire.metadata import NO_TOPIC_ID

_FIRST_WITH_STABLE: Final = 7
_FIRST_WITH_GROUPS: Final = 8
_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
# The group is in another generation, or soon will be. The member learns it by other answers.
_LATE: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
# Others are about the offsets, and end no membership.
_ABOUT_MEMBERSHIP: Final = _GONE | _LATE | MOVED | {ErrorCode.GROUP_AUTHORIZATION_FAILED}


class CommittedPosition(NamedTuple):
    """What a group committed for a partition of the topic of this id, None if it was asked by name."""

    offset: int
    leader_epoch: int
    topic_id: UUID | None


class GroupOffsets:
    """`readers` are those of the consumer. `position_id` is the id of the topic of a position, `topic_id` of
    the present topic of a name, None if it is not known, and `refresh` looks it up. `react` is called when
    the membership may have changed."""

    def __init__(
        self,
        config: ClusterConfig,
        coordinator: GroupCoordinator,
        membership: Membership | ConsumerMembership,
        readers: Mapping[TopicPartition, object],
        position_id: Callable[[TopicPartition], UUID | None],
        topic_id: Callable[[str], UUID | None],
        refresh: Callable[[], Awaitable[object]],
        react: Callable[[], None],
    ) -> None:
        self._position_id = position_id
        self._topic_id = topic_id
        self._refresh = refresh
        self._config = config
        self._coordinator = coordinator
        self._membership = membership
        self._readers = readers
        self._react = react

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises CommitFailedError if the group gave a partition to another member, another ClientError, or
        RequestTimeoutError after request_timeout_ms."""
        if not offsets:
            return
        readers = {key: self._readers.get(key) for key in offsets}

        async def attempt() -> ClientError | None:
            if any(self._readers.get(key) is not reader for key, reader in readers.items()):
                raise CommitFailedError("a partition was given up before its offset was committed")
            identity = self._membership.identity
            if self._membership.is_subscribed and identity.generation < 0:
                text = "this consumer is no member of the group"
                raise (self._membership.error or CommitFailedError(text)).with_traceback(None)
            return await self._send_commit(offsets, identity)

        await self._repeat(attempt, "commit")

    async def fetch(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedPosition | None]:
        """What the group committed for each, None for nothing. Raises ClientError, RequestTimeoutError."""
        found: dict[TopicPartition, CommittedPosition | None] = {}
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)

        async def attempt() -> ClientError | None:
            names = {name: self._topic_id(name) for name in topics}
            answer = await self._ask_for(topics, names)
            of_group = answer.groups[0] if answer.groups else answer
            if of_group.error_code != ErrorCode.NONE:
                return self._refusal(error_code(of_group.error_code), self._membership.identity)
            by_id = {topic_id: name for name, topic_id in names.items()}
            is_by_id = not of_group.topics or not of_group.topics[0].name
            results = [
                (by_id[topic.topic_id] if is_by_id else topic.name, each)
                for topic in of_group.topics
                for each in topic.partitions
            ]
            for name, each in results:
                if each.error_code != ErrorCode.NONE:
                    code = error_code(each.error_code)
                    if code is ErrorCode.UNKNOWN_TOPIC_ID:
                        await self._refresh()  # Its topic was deleted, or the coordinator learns of it soon.
                    return self._refusal(code, self._membership.identity, f", topic {name!r}")
            for name, each in results:
                key, offset = TopicPartition(name, each.partition_index), each.committed_offset
                own_id = names[name] if is_by_id else None
                committed = CommittedPosition(offset, each.committed_leader_epoch, own_id)
                found[key] = committed if offset != NO_OFFSET else None
            return None

        await self._repeat(attempt, "committed offsets")
        return found

    async def _ask_for(self, topics: Mapping[str, list[int]], ids: Mapping[str, UUID | None]) -> Any:
        """The answer to OffsetFetch for partitions of topics: by id, if all have one and the coordinator
        supports it."""
        group_id = self._membership.group_id

        def values(version: int) -> "DictOf[types.OffsetFetchRequest]":
            # An offset that a transaction still holds is waited for: what comes after it is not decided.
            is_stable = version >= _FIRST_WITH_STABLE
            if version < _FIRST_WITH_GROUPS:
                named: list[DictOf[types.OffsetFetchRequestTopic]] = [
                    {"name": name, "partition_indexes": indexes} for name, indexes in topics.items()
                ]
                return {"group_id": group_id, "topics": named, "require_stable": is_stable}
            asked: list[DictOf[types.OffsetFetchRequestGroupTopic]] = [
                {"name": name, "topic_id": ids[name] or NO_TOPIC_ID, "partition_indexes": indexes}
                for name, indexes in topics.items()
            ]
            return {"groups": [{"group_id": group_id, "topics": asked}], "require_stable": is_stable}

        return await self._call(ApiKey.OFFSET_FETCH, values, by_id=None not in ids.values())

    async def _send_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], identity: Identity
    ) -> ClientError | None:
        ids = {key.topic: self._position_id(key) for key in offsets}
        is_member = identity.generation >= 0
        values: DictOf[types.OffsetCommitRequest] = {
            "group_id": self._membership.group_id,
            "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": self._membership.group_instance_id if is_member else None,
            "topics": [
                {"name": name, "topic_id": ids[name] or NO_TOPIC_ID, "partitions": entries}
                for name, entries in commits_by_topic(offsets).items()
            ],
        }
        by_id = None not in ids.values()
        answer: types.OffsetCommitResponse = await self._call(ApiKey.OFFSET_COMMIT, values, by_id=by_id)
        names = {topic_id: name for name, topic_id in ids.items()}
        codes = {
            error_code(each.error_code): topic.name or names.get(topic.topic_id)
            for topic in answer.topics
            for each in topic.partitions
        }
        for code in sorted(codes.keys() - {ErrorCode.NONE}):
            error = self._refusal(code, identity, f", topic {codes[code]!r}")
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                # The topic was deleted. A rebalance must not wait until it exists again.
                error.retriable = False
            return error
        return None

    def _refusal(self, code: ErrorCode, identity: Identity, of: str = "") -> ClientError:
        """The error of an answer; retriable if the same call may succeed later. `of` names the topic."""
        membership = self._membership
        may_pass = code in _LATE or (
            code is ErrorCode.ILLEGAL_GENERATION
            and (membership.awaits_join or membership.identity != identity)
        )
        if code in _ABOUT_MEMBERSHIP:
            membership.heartbeat_answered(identity, code)
            self._react()
        if may_pass:
            error = broker_error(code, f"group {membership.group_id!r}{of}")
            error.retriable = True
            return error
        if code in _GONE:
            return membership.error or CommitFailedError(code.message)
        return broker_error(code, f"group {membership.group_id!r}{of}")

    async def _call(
        self,
        api_key: ApiKey,
        values: Mapping[str, object] | Callable[[int], Mapping[str, object]],
        *,
        by_id: bool,
    ) -> Any:
        node_id = await self._coordinator.find_for(self._membership)
        at_most = None if by_id else LAST_BY_NAME[api_key]
        try:
            return await self._coordinator.call(node_id, api_key, values, at_most=at_most)
        except ClientError as error:
            if error.retriable and self._membership.coordinator == node_id:
                self._membership.coordinator = None
                self._react()
            raise

    async def _repeat(self, attempt: Callable[[], Any], what: str) -> None:
        """Repeat until there is no error. Raises as `Retries.wait`."""
        retries = Retries(self._config)
        while True:
            try:
                error: ClientError | None = await attempt()
            except ClientError as caught:
                error = caught
            if error is None:
                return
            await retries.wait(error, f"{what}: group {self._membership.group_id!r} has no answer")
