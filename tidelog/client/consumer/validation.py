"""Whether a position lies in the log of a new leader, or in a part that only another leader had.

Owns OffsetForLeaderEpoch, and what follows from its answers. A leader is asked where the epoch of the record
before the position ended in its log: if that is before the position, the records between the two were read
and are lost, after an unclean election or the loss of a disk. Invariants: the end of what was fetched is
asked about; if only records that were not returned yet are lost, others are fetched, and nothing is reported.

Source: KIP-320, Kafka's SubscriptionState.maybeCompleteValidation.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.errors import LogTruncationError, read_error
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_LEADER_EPOCH, TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientError
from tidelog.wire.events import logger

_CONSUMER: Final = -1


async def validate(
    cluster: Cluster,
    leader: int,
    readers: Sequence[PartitionReader],
    reset_timestamp: int | None,
    lose: Callable[[PartitionReader, str], None],
) -> ClientError | None:
    """Validate the positions of these readers at their leader. Returns a retriable error, if there is one.

    If records are gone, a reader continues at the end of what is common, or fails if `reset_timestamp` is
    None. `lose` is called for one where that end is not known.
    """
    asked: dict[TopicPartition, tuple[PartitionReader, int, int]] = {}
    topics: dict[str, list[DictOf[types.OffsetForLeaderEpochRequestPartition]]] = {}
    for reader in readers:
        current = cluster.image.leader_epoch(reader.key)
        asked[reader.key] = reader, reader.generation, current
        topics.setdefault(reader.key.topic, []).append(
            {
                "partition": reader.key.partition,
                "current_leader_epoch": current,
                "leader_epoch": reader.fetch_epoch,
            }
        )
    values: DictOf[types.OffsetForLeaderEpochRequest] = {
        "replica_id": _CONSUMER,
        "topics": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    try:
        connection = await cluster.connected(leader)
        if not connection.supports(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            for reader, _, current in asked.values():
                reader.valid_in = current
            return None
        answer: types.OffsetForLeaderEpochResponse = await connection.call(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, values
        )
    except ClientError as refusal:
        return refusal
    failure: ClientError | None = None
    for topic in answer.topics:
        for each in topic.partitions:
            key = TopicPartition(topic.topic, each.partition)
            reader, generation, current = asked[key]
            if reader.generation != generation:
                continue
            code = error_code(each.error_code)
            if code is ErrorCode.NONE:
                end = each.leader_epoch, each.end_offset
                _apply(reader, end, current, reset_timestamp, lose)
                continue
            error = read_error(code, f"the end of leader epoch {reader.fetch_epoch} of {_name(key)}")
            if error.retriable:
                failure = error
            else:
                reader.fail(error)
    return failure


def _apply(
    reader: PartitionReader,
    end: tuple[int, int],
    current: int,
    reset_timestamp: int | None,
    lose: Callable[[PartitionReader, str], None],
) -> None:
    epoch, end_offset = end
    position = reader.fetch_offset if reader.position is None else reader.position
    is_known = epoch != NO_LEADER_EPOCH and end_offset >= 0
    if is_known and end_offset >= reader.fetch_offset:
        reader.valid_in = current
    elif is_known and end_offset >= position:
        reader.fetch_again()
    elif reset_timestamp is None:
        reader.fail(
            LogTruncationError(
                f"{_name(reader.key)}: {_reason(reader, position, end if is_known else None)}",
                {reader.key: position},
                {reader.key: end} if is_known else {},
            )
        )
    elif is_known:
        logger.warning(
            "log_truncated",
            partition=_name(reader.key),
            offset=position,
            leader_epoch=reader.position_epoch,
            diverging_offset=end_offset,
            diverging_epoch=epoch,
        )
        reader.seek(end_offset, epoch)
        reader.valid_in = current
    else:
        lose(reader, _reason(reader, position, None))


def _reason(reader: PartitionReader, position: int, end: tuple[int, int] | None) -> str:
    text = f"the log was truncated before position {position}, whose last record had leader epoch"
    where = "" if end is None else f". The logs agree up to offset {end[1]}, of leader epoch {end[0]}"
    return f"{text} {reader.position_epoch}{where}"


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"
