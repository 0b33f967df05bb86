"""WriteTxnMarkers: a transaction coordinator ends transactions on the partitions that this broker leads.

Invariants: a partition fails alone; a marker is answered when it is committed; one that is named twice is
written once and answered each time, and one that is sent again is written again, which changes nothing;
markers of `__consumer_offsets` go through the coordinator of groups, so that what the transaction committed
counts, or is forgotten, at once.

Versions: from 2 on a marker says the version of its transaction (KIP-1228). Source: KIP-98, KIP-664 (an
administrator aborts a hanging transaction with it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.handlers.by_topic import answers_by_topic
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.steps import Pace, Steps, each

_STEP_COST_MARKER: Final = 10
"""Building, reading and appending one marker counts as this many elements (see `protocol.steps`)."""
_ENDED_AT_ONCE: Final = 100
_Marked = tuple[TransactionMarker, str, int]
_Outcomes = dict[_Marked, Replica | ErrorCode]
"""By marker, topic and partition: the replica that it was written to, or why it was not."""
_OF_THE_COORDINATOR: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What a transaction coordinator gets for the code of the groups' coordinator: it tries again."""


class TransactionMarkersHandler:
    """Serves WriteTxnMarkers 1-2."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def write_txn_markers(
        self, context: RequestContext, request: types.WriteTxnMarkersRequest
    ) -> DictOf[types.WriteTxnMarkersResponse]:
        turns = self._services.turns
        written: _Outcomes = {}
        of_groups: dict[_Marked, None] = {}
        await turns.run(self._write_all(request, written, of_groups))
        noted = list(of_groups)
        for first in range(0, len(noted), _ENDED_AT_ONCE):
            some = noted[first : first + _ENDED_AT_ONCE]
            codes = await asyncio.gather(*map(self._end_in_groups, some))
            written.update(zip(some, codes, strict=True))
        replicas = [replica for replica in dict.fromkeys(written.values()) if isinstance(replica, Replica)]
        committed = [replica.committed(replica.log.end_offset) for replica in replicas]
        waited = await asyncio.gather(*committed, return_exceptions=True)
        failed = {
            replica: outcome.code
            for replica, outcome in zip(replicas, waited, strict=True)
            if isinstance(outcome, ApiError)
        }
        return {"markers": await turns.run(_answers(request, written, failed))}

    async def _end_in_groups(self, marked: _Marked) -> ErrorCode:
        """Write a marker through the coordinator of groups; the code of its answer."""
        marker, topic, index = marked
        try:
            self._services.replica(topic, index)
            await self._services.groups.end_transaction(index, marker)
        except ApiError as error:
            return _OF_THE_COORDINATOR.get(error.code, error.code)
        return ErrorCode.NONE

    def _write_all(
        self, request: types.WriteTxnMarkersRequest, written: _Outcomes, of_groups: dict[_Marked, None]
    ) -> Steps[None]:
        """Write all markers but those of `__consumer_offsets`, which are noted in `of_groups`."""
        pace = Pace()
        for asked in request.markers:
            marker = _marker(asked)
            for topic in asked.topics:
                if topic.name == OFFSETS_TOPIC:
                    write = partial(_note, marker, of_groups)
                else:
                    write = partial(self._write, marker, topic.name, written)
                yield from each(write, topic.partition_indexes, pace, _STEP_COST_MARKER)
                if pace.spent():
                    yield
            if pace.spent():
                yield

    def _write(self, marker: TransactionMarker, topic: str, written: _Outcomes, index: int) -> None:
        if (marker, topic, index) in written:
            return
        try:
            replica = self._services.replica(topic, index)
            replica.write_marker(marker, self._services.clock_ms())
        except ApiError as error:
            written[marker, topic, index] = error.code
        else:
            written[marker, topic, index] = replica


def _note(marker: TransactionMarker, of_groups: dict[_Marked, None], index: int) -> None:
    of_groups[marker, OFFSETS_TOPIC, index] = None


def _marker(asked: types.WriteTxnMarkersRequestMarker) -> TransactionMarker:
    return TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )


def _answers(
    request: types.WriteTxnMarkersRequest, written: _Outcomes, failed: Mapping[Replica, ErrorCode]
) -> Steps[list[DictOf[types.WriteTxnMarkersResponseMarker]]]:
    pace = Pace()
    answers: list[DictOf[types.WriteTxnMarkersResponseMarker]] = []

    def answer(
        marker: TransactionMarker, topic: str, index: int
    ) -> DictOf[types.WriteTxnMarkersResponsePartition]:
        outcome = written[marker, topic, index]
        code = failed.get(outcome, ErrorCode.NONE) if isinstance(outcome, Replica) else outcome
        return {"partition_index": index, "error_code": code}

    for asked in request.markers:
        marker = _marker(asked)
        wanted = ((topic.name, topic.partition_indexes) for topic in asked.topics)
        topics = yield from answers_by_topic(wanted, partial(answer, marker), pace)
        answers.append({"producer_id": asked.producer_id, "topics": topics})
        if pace.spent():
            yield
    return answers
