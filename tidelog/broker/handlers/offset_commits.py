"""OffsetCommit and TxnOffsetCommit: groups commit offsets, by themselves or with a transaction.

A commit is answered once it is durable.

Invariants: each partition of a commit is accepted or refused alone, and those that are accepted are stored
all or none; what a transaction commits counts with the transaction's end; a transaction takes an offset only
after it is durable that the group's partition of `__consumer_offsets` takes part in it.

Versions: OffsetCommit 2 to 4 set how long offsets are kept; members of the consumer protocol need 9, which
also says that a group does not exist; from 10 on topics have ids. TxnOffsetCommit names the member from 3 on;
from 4 on it says TRANSACTION_ABORTABLE, from 5 on it adds its partition itself. Source: Kafka's KafkaApis and
OffsetMetadataManager, KIP-211, KIP-447, KIP-848, KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias, cast

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, Topic
from tidelog.broker.coordinator.decision import Decision, Operation
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.participation import VerificationResult
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import READ_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each
from tidelog.protocol.types import MAX_TIMESTAMP, NO_TIMESTAMP, TopicPartition

_TOPIC_IDS_FROM = 10
_ABORTABLE_FROM = 4
_ADDS_PARTITIONS_FROM = 5
_DEFAULT_RETENTION = -1
_Answers: TypeAlias = "list[DictOf[types.OffsetCommitResponseTopic]]"


class OffsetCommitsHandler(GuardedHandler):
    """Serves OffsetCommit 2-10 and TxnOffsetCommit 0-5."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._groups = services.groups
        self._catalog = services.catalog

    async def offset_commit(
        self, context: RequestContext, request: types.OffsetCommitRequest
    ) -> DictOf[types.OffsetCommitResponse]:
        records: list[OffsetRecord] = []
        by_id = context.header.api_version >= _TOPIC_IDS_FROM
        plan = self._planned(
            context, request.group_id, request.topics, request.retention_time_ms, by_id, records
        )
        topics = await self._services.turns.run(plan)
        if records:
            committer = Committer(
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                context.header.api_version,
            )

            def commit(machine: GroupMachine) -> Operation[None]:
                return machine.offsets.commit(request.group_id, committer, records)

            await self._groups.make_topic()
            await self._groups.run(request.group_id, commit)
        return {"topics": topics}

    async def txn_offset_commit(
        self, context: RequestContext, request: types.TxnOffsetCommitRequest
    ) -> DictOf[types.TxnOffsetCommitResponse]:
        records: list[OffsetRecord] = []
        # They have all fields that are read without topic ids.
        asked = cast("list[types.OffsetCommitRequestTopic]", request.topics)
        plan = self._planned(context, request.group_id, asked, _DEFAULT_RETENTION, False, records)
        topics = await self._services.turns.run(plan)
        if records:
            try:
                await self._commit_in_transaction(context.header.api_version, request, records)
            except ApiError as error:
                code = error.code
                if code == ErrorCode.PRODUCER_FENCED:  # Not a code of this API.
                    code = ErrorCode.INVALID_PRODUCER_EPOCH
                await self._services.turns.run(_refuse(topics, code))
        return {"topics": topics}

    async def _commit_in_transaction(
        self, version: int, request: types.TxnOffsetCommitRequest, records: Sequence[OffsetRecord]
    ) -> None:
        """Raises ApiError."""
        producer = Producer(request.producer_id, request.producer_epoch)
        committer = Committer(
            request.generation_id, request.member_id, request.group_instance_id, is_in_transaction=True
        )
        transactions = self._services.transactions
        await self._groups.make_topic()
        where = TopicPartition(OFFSETS_TOPIC, self._groups.partition_of(request.group_id))
        adds = version >= _ADDS_PARTITIONS_FROM
        word: VerificationResult | None = None
        participation = self._services.participation
        if participation.is_asked_elsewhere(request.transactional_id):
            words = await participation.ask(request.transactional_id, producer, [where], adds=adds)
            if where not in words:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            word = words[where]
        elif adds:
            await transactions.add_partitions(request.transactional_id, producer, [where])

        def commit(machine: GroupMachine) -> Operation[None]:
            operation = machine.offsets.commit_in_transaction(request.group_id, committer, producer, records)

            def permitted(now_ms: int) -> Decision[object, None]:
                # In the same step as the write: no marker may be written between the two.
                code = (
                    transactions.permits(request.transactional_id, *producer, *where)
                    if word is None
                    else word.now
                )
                if code == ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
                    code = ErrorCode.TRANSACTION_ABORTABLE
                if code != ErrorCode.NONE:
                    raise ApiError(code)
                return operation(now_ms)

            return permitted

        await self._groups.run(request.group_id, commit)

    def _planned(
        self,
        context: RequestContext,
        group_id: str,
        asked: Sequence[types.OffsetCommitRequestTopic],
        retention_ms: int,
        by_id: bool,
        records: list[OffsetRecord],
    ) -> Steps[_Answers]:
        """The answer for each partition if the group may commit; adds the records to store to `records`."""
        now_ms = self._services.clock_ms()
        expires_ms: int = NO_TIMESTAMP
        if retention_ms != _DEFAULT_RETENTION:
            expires_ms = min(now_ms + retention_ms, MAX_TIMESTAMP)
        longest = self._services.config.offset_metadata_max_bytes
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def commit_one(
            topic: Topic | None, refused: ErrorCode, wanted: types.OffsetCommitRequestPartition
        ) -> DictOf[types.PartitionError]:
            metadata = wanted.committed_metadata or ""
            code = ErrorCode.NONE
            if refused:
                code = refused
            elif topic is None:
                code = unknown
            elif not topic.has_partition(wanted.partition_index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > longest:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = wanted.committed_leader_epoch
                committed = CommittedOffset(
                    wanted.committed_offset, epoch, metadata, now_ms, expires_ms, topic.topic_id
                )
                records.append(OffsetRecord(group_id, topic.name, wanted.partition_index, committed))
            return {"partition_index": wanted.partition_index, "error_code": code}

        pace = Pace()
        answers: list[DictOf[types.OffsetCommitResponseTopic]] = []
        for wanted in asked:
            topic = self._catalog.topic_by_id(wanted.topic_id) if by_id else self._catalog.topic(wanted.name)
            name = wanted.name if topic is None else topic.name
            # An id that no topic has names nothing that could be allowed.
            is_allowed = (by_id and topic is None) or self._access.allows_offsets(context, READ_TOPIC, name)
            refused = ErrorCode.NONE if is_allowed else READ_TOPIC.refusal
            partitions = yield from each(partial(commit_one, topic, refused), wanted.partitions, pace)
            answer: DictOf[types.OffsetCommitResponseTopic] = {"name": wanted.name, "partitions": partitions}
            answers.append({**answer, "topic_id": wanted.topic_id} if by_id else answer)
            if pace.spent():
                yield
        return answers


def _refuse(topics: _Answers, code: ErrorCode) -> Steps[None]:
    """Set the code of all partitions that were accepted."""
    pace = Pace()
    for topic in topics:
        for partition in topic["partitions"]:
            if partition["error_code"] == ErrorCode.NONE:
                partition["error_code"] = code
            if pace.spent():
                yield
