"""What batches that no client sent must satisfy: those of this broker's coordinators and of a leader.

Owns the admission of a leader's batch after those that are here, and of what a coordinator writes for a
producer: a marker, or records of a transaction. Invariant: nothing changes but the offset up to which gaps
are legal.

Source: Kafka's ProducerAppendInfo.appendEndTxnMarker.
"""

from tidelog.broker.storage.batch_rules import AppendOrigin
from tidelog.broker.storage.cleaned_offset import CleanedOffset
from tidelog.broker.storage.leader_epochs import LeaderEpochs
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Refusal
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import BatchHeader, EndTransactionMarker, read_marker
from tidelog.protocol.types import Buffer

_LARGEST_GAP = 2**30
"""An index holds offsets relative to a segment's base in 31 bits."""


class EpochsUnknownError(ApiError):
    """The leader has no batch any more between the end of the log and the next one, of another epoch: only
    the leader knows where epochs up to `epoch` began."""

    def __init__(self, epoch: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_LEADER_EPOCH, f"where leader epoch {epoch} began is not known")
        self.epoch = epoch


def follow(
    header: BatchHeader, partition: str, end_offset: int, epochs: LeaderEpochs, cleaned: CleanedOffset
) -> tuple[int, int]:
    """Allow the gaps of the leader's batch. Returns its offset and leader epoch. Raises ApiError if it
    cannot come after the last one, which ends at `end_offset`, and EpochsUnknownError."""
    base_offset, epoch = header.base_offset, header.partition_leader_epoch
    if not end_offset <= base_offset <= end_offset + _LARGEST_GAP or epoch < epochs.latest:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{partition}: the leader's batch begins at offset {base_offset} in leader"
            f" epoch {epoch}; the log ends at {end_offset} in {epochs.latest}",
        )
    if base_offset > end_offset and epochs.is_unknown(epoch):
        raise EpochsUnknownError(epoch)
    if header.record_count <= header.last_offset_delta:
        cleaned.note(header.last_offset + 1)
    elif base_offset > end_offset:
        cleaned.note(base_offset)
    return base_offset, epoch


def admit_for_producer(
    batch: Buffer, header: BatchHeader, origin: AppendOrigin, producers: ProducerStates
) -> EndTransactionMarker | None:
    """What a batch that names a producer says as a marker, if it is one. Raises ApiError if a coordinator
    may not write it."""
    is_leaders = origin is AppendOrigin.LEADER
    if not header.is_control:
        _raise_if_refused(None if is_leaders else producers.check_own(header))
        return None
    try:
        marker = read_marker(batch)
    except ProtocolError as error:
        if is_leaders:
            return None  # A kind that this version does not know.
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    _raise_if_refused(None if is_leaders else producers.check_marker(header, marker))
    return marker


def _raise_if_refused(verdict: object) -> None:
    if isinstance(verdict, Refusal):
        raise ApiError(verdict.code, verdict.message)
