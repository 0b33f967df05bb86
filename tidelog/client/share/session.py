"""The share session with one broker: which partitions a request names.

Owns: the session's epoch, and the partitions that the broker holds for it. Invariants:
- a session has one request at a time: `fetch` or `acknowledge`, then `answered` or `failed`;
- the first request is a fetch, and acknowledges nothing: brokers refuse both else;
- after any error of the session, the next request opens a new one.

Pure. Source: KIP-932, Kafka's ShareSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf

FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class SharePartition(NamedTuple):
    """A partition as requests name it."""

    topic_id: UUID
    partition: int


class Batch(NamedTuple):
    """Records that are acknowledged together: `last_offset` is one of them. One type counts for all, else
    each has its own."""

    first_offset: int
    last_offset: int
    types: list[int]


Acknowledged = Mapping[SharePartition, list[Batch]]


class ShareSession:
    """It is not open at first."""

    def __init__(self) -> None:
        self.epoch = _INITIAL_EPOCH
        self.partitions: frozenset[SharePartition] = frozenset()
        self._asked: frozenset[SharePartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether the broker holds the session, as far as the client knows."""
        return self.epoch != _INITIAL_EPOCH

    def fetch(
        self, wanted: Set[SharePartition], acknowledged: Acknowledged
    ) -> DictOf[types.ShareFetchRequest]:
        """The parts of a ShareFetch of exactly `wanted`, of which `acknowledged` are some. A session that is
        not open acknowledges nothing."""
        self._asked = frozenset(wanted)
        if not self.is_open:
            acknowledged = {}
        added = self._asked - self.partitions
        named = {each: acknowledged.get(each, []) for each in sorted({*added, *acknowledged})}
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition in sorted(self.partitions - self._asked):
            forgotten.setdefault(topic_id, []).append(partition)
        return {
            "share_session_epoch": self.epoch,
            "topics": _by_topic(named),
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": each} for topic_id, each in forgotten.items()
            ],
        }

    def acknowledge(
        self, acknowledged: Acknowledged, *, is_final: bool
    ) -> DictOf[types.ShareAcknowledgeRequest]:
        """The parts of a ShareAcknowledge; the final one also ends the session."""
        self._asked = self.partitions
        epoch = FINAL_EPOCH if is_final else self.epoch
        return {"share_session_epoch": epoch, "topics": _by_topic(acknowledged)}

    def answered(self, code: ErrorCode) -> None:
        """The answer as a whole has this code."""
        if code in SESSION_ERRORS:
            self.failed()
        else:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
            self.partitions = self._asked

    def failed(self) -> None:
        """The answer was lost, or the session is not known: the next request opens a new one."""
        self.epoch = _INITIAL_EPOCH
        self.partitions = frozenset()


def _by_topic(named: Acknowledged) -> list[DictOf[types.AcknowledgedTopic]]:
    topics: dict[UUID, list[DictOf[types.AcknowledgedPartition]]] = {}
    for (topic_id, partition), batches in named.items():
        fields: list[DictOf[types.AcknowledgementBatch]] = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": kinds}
            for first, last, kinds in batches
        ]
        topics.setdefault(topic_id, []).append(
            {"partition_index": partition, "acknowledgement_batches": fields}
        )
    return [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()]
