"""Dead letters of share groups: what becomes of records that no member accepted.

Owns which topic takes them, and their form: a record with headers that say where the original is and why it
is dead; with errors.deadletterqueue.copy.record.enable also with its key, value and headers. The partition is
that of the original, modulo the number of partitions.

Invariant: a dead letter is durable when it was written; without an answer it is written again.

On the event loop, except what it runs in threads. Source: KIP-1191, Kafka's ShareGroupDLQStateManager,
ShareGroupDLQRecordHelper and ShareGroupDLQValidator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.configuration.group_settings import ShareGroupConfig, share_group_config
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.observability.share_counts import ShareCounts
from tidelog.broker.replicas.leader import ACKS_ALL
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.share.log_reader import LogReader, isolation_level
from tidelog.broker.share.parts import BrokerParts
from tidelog.broker.share.reading import Batches
from tidelog.broker.share.share_partition import DeadLetters
from tidelog.broker.storage.log_types import Read
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, error_code
from tidelog.protocol.records import BATCH_HEADER_SIZE, Headers, Record, RecordBatchBuilder, decode_batch
from tidelog.protocol.schema import ApiKey

REJECTED = b"Offset rejected by client."
DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
_ENABLED = "errors.deadletterqueue.group.enable"
_BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Between the attempts to write one batch."""
_TIMEOUT_MS = 30_000
_MOST_RECORDS = 1_000
"""Of one batch."""
_READ_BYTES = 1 << 20
_LANE = "dead letters"
logger = structlog.get_logger(__name__)


class _Originals(NamedTuple):
    """Dead letters of one range, with those of the original records that are to be copied, by offset."""

    letters: DeadLetters
    records: Mapping[int, Record]


class DeadLetterTopics:
    """Writes the dead letters of the share partitions of one broker."""

    def __init__(self, services: BrokerParts, reader: LogReader, counts: ShareCounts) -> None:
        self._services = services
        self._reader = reader
        self._counts = counts

    def refusal(self, group_id: str, name: str) -> str | None:
        """Why this topic cannot have the dead letters of a group; None if it can."""
        config = self._services.config
        prefix = config.errors_deadletterqueue_topic_name_prefix
        topic = self._services.catalog.topic(name)
        if not name:
            return f"group {group_id} has no topic for dead letters: set errors.deadletterqueue.topic.name"
        if name.startswith("__") or not name.startswith(prefix):
            return (
                f"the name of topic {name} has to begin with {prefix!r}, as "
                "errors.deadletterqueue.topic.name.prefix says, and not with '__'"
            )
        if topic is None:
            if config.errors_deadletterqueue_auto_create_topics_enable:
                return None
            return (
                f"topic {name} does not exist: create it with {_ENABLED}=true, or set "
                "errors.deadletterqueue.auto.create.topics.enable"
            )
        if self._services.topics.settings.value(topic.configs, _ENABLED) != "true":
            return f"topic {name} takes no dead letters: set {_ENABLED}=true on it"
        return None

    async def write(
        self, key: SharePartitionKey, replica: Replica, letters: Sequence[DeadLetters]
    ) -> tuple[int, ApiError | None]:
        """Write one batch of them: how many of the first that are, and why they could not be written."""
        config = share_group_config(self._services.config, self._services.catalog, key.group_id)
        pauses = iter(_BACKOFF_SECONDS)
        while True:
            count = sum(each.last - each.first + 1 for each in letters)
            try:
                topic = await self._topic(key.group_id, config.dead_letter_topic)
                batch, count = await self._batch(key, replica, topic, config, letters)
                self._counts.dead_letter_requests += 1
                await self._append(topic.name, key.partition % len(topic.partitions), batch, count)
            except ApiError as error:
                self._counts.dead_letter_failures += 1
                pause = next(pauses, None)
                if pause is None or not error.code.retriable:
                    return count, error
            else:
                self._counts.dead_letters += count
                return count, None
            await asyncio.sleep(pause)

    async def _topic(self, group_id: str, name: str) -> Topic:
        """The topic, which is created if it does not exist and that is allowed. Raises ApiError."""
        refusal = self.refusal(group_id, name)
        if refusal is not None:
            raise ApiError(ErrorCode.INVALID_CONFIG, refusal)
        topic = self._services.catalog.topic(name)
        if topic is not None:
            return topic
        configs = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        try:
            return await self._services.topics.create(name, NewTopic(configs=configs))
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return await self._topic(group_id, name)

    async def _batch(
        self,
        key: SharePartitionKey,
        replica: Replica,
        topic: Topic,
        config: ShareGroupConfig,
        letters: Sequence[DeadLetters],
    ) -> tuple[bytearray, int]:
        """A batch of the first of them, and of how many. Raises ApiError."""
        originals: list[_Originals] = []
        count = size_bytes = 0
        for each in letters:
            first = each.first
            while first <= each.last and count < _MOST_RECORDS and size_bytes < _READ_BYTES:
                last = min(each.last, first + _MOST_RECORDS - count - 1)
                records: Mapping[int, Record] = {}
                if config.copies_dead_letters:
                    records, last = await self._copied(replica, first, last, config)
                originals.append(_Originals(each._replace(first=first, last=last), records))
                size_bytes += sum(len(one.key or b"") + len(one.value or b"") for one in records.values())
                count += last - first + 1
                first = last + 1
        value = self._services.topics.settings.value
        most_bytes = min(int(value(topic.configs, name)) for name in ("max.message.bytes", "segment.bytes"))
        return await asyncio.to_thread(
            _built, key.group_id, replica, originals, self._services.clock_ms(), most_bytes
        )

    async def _copied(
        self, replica: Replica, first: int, last: int, config: ShareGroupConfig
    ) -> tuple[Mapping[int, Record], int]:
        """The records of [first, last] that can be read, and up to where that is known. Raises
        ApiError(NOT_LEADER_OR_FOLLOWER)."""
        end_offset = replica.ends.visible(isolation_level(config))
        read = Read(first, 1 if first == last else _READ_BYTES, end_offset)
        try:
            found = await self._reader.read(replica, read, config)
            records = await asyncio.to_thread(_records_in, found, first, last)
        except (ApiError, ProtocolError) as error:
            if isinstance(error, ApiError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            logger.warning(
                "dead_letters_without_originals",
                topic=replica.topic,
                partition=replica.partition,
                first=first,
                last=last,
                error=str(error),
                advice="their dead letters have headers only",
            )
            return {}, last
        return records, min(last, found.read_to - 1) if found.read_to > first else last

    async def _append(self, name: str, index: int, batch: bytearray, count: int) -> None:
        """Returns once it is durable. Raises ApiError."""
        services = self._services
        leader_id = services.leader_of(name, index)
        if leader_id < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {name}-{index} has no leader now")
        if leader_id != services.node_id:
            await self._send(leader_id, name, index, batch)
            return
        replica = services.replica(name, index)
        if replica.in_sync_count < replica.least_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"of partition {name}-{index}")
        replica.append_as_leader(batch, services.clock_ms())
        services.metrics.batch_appended(name, count, len(batch))
        try:
            await asyncio.wait_for(replica.committed(replica.log.end_offset), _TIMEOUT_MS / 1000)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"partition {name}-{index} does not commit") from None

    async def _send(self, node_id: int, name: str, index: int, batch: bytearray) -> None:
        partitions = [{"index": index, "records": batch}]
        asked: dict[str, object] = {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout_ms": _TIMEOUT_MS,
            "topic_data": [{"name": name, "partition_data": partitions}],
        }
        answer: types.ProduceResponse = await self._services.peers.call(node_id, ApiKey.PRODUCE, asked, _LANE)
        code, message = next(
            (
                (error_code(each.error_code), each.error_message)
                for topic in answer.responses
                for each in topic.partition_responses
                if (topic.name, each.index) == (name, index)
            ),
            (ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} does not answer for partition {name}-{index}"),
        )
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise self._services.peers.not_authorized(node_id, ApiKey.PRODUCE)
        if code:
            raise ApiError(code, message)


def _records_in(found: Batches, first: int, last: int) -> Mapping[int, Record]:
    """Raises ProtocolError."""
    return {
        record.offset: record
        for place in found.places
        if place.first <= last and place.last >= first
        for record in decode_batch(found.stretches[place.stretch], place.position)
        if first <= record.offset <= last
    }


def _built(
    group_id: str, replica: Replica, originals: Sequence[_Originals], now_ms: int, most_bytes: int
) -> tuple[bytearray, int]:
    """A batch of the first of them, and of how many. What does not fit into any batch is not copied."""
    builder = RecordBatchBuilder(min(most_bytes, _READ_BYTES))
    where = (
        ("__dlq.errors.topic", replica.topic.encode()),
        ("__dlq.errors.partition", b"%d" % replica.partition),
    )
    for letters, records in originals:
        why = (
            ("__dlq.errors.group", group_id.encode()),
            ("__dlq.errors.delivery.count", b"%d" % letters.delivery_count),
            ("__dlq.errors.message", REJECTED if letters.is_rejected else DELIVERED_TOO_OFTEN),
        )
        for offset in range(letters.first, letters.last + 1):
            headers: Headers = (*where, ("__dlq.errors.offset", b"%d" % offset), *why)
            record = records.get(offset)
            key = value = None
            if record is not None:
                copied = (*record.headers, *headers)
                size_bytes = BATCH_HEADER_SIZE + builder.record_size_bound(record.key, record.value, copied)
                if size_bytes <= most_bytes:
                    key, value, headers = record.key, record.value, copied
            if not builder.append(now_ms, key, value, headers):
                return builder.build(), builder.record_count
    return builder.build(), builder.record_count
