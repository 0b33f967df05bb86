"""The records of share partitions in `__share_group_state`: snapshots, and updates of them.

Owns the conversion to Kafka's encodings. An update holds with the snapshot before it; a snapshot without a
value removes the state.

Pure. Source: Kafka's ShareCoordinatorRecordHelpers.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.broker.coordinator.record_formats import RecordFormats, RecordKind
from tidelog.broker.coordinator.share_states.state import SharePartitionKey, ShareState, StateBatch
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.messages import share_records as messages

_SNAPSHOT_KEY = RecordSchema(messages.ShareSnapshotKey, 0, 0)
_SNAPSHOT = RecordSchema(messages.ShareSnapshotValue, 0, 0)
_UPDATE_KEY = RecordSchema(messages.ShareUpdateKey, 1, 1)
_UPDATE = RecordSchema(messages.ShareUpdateValue, 0, 0)


class ShareSnapshotRecord(NamedTuple):
    """The whole state. None: it is removed."""

    key: SharePartitionKey
    state: ShareState | None


class ShareUpdateRecord(NamedTuple):
    """What changed since the snapshot of this epoch."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


def batch_values(batches: Iterable[StateBatch]) -> list[dict[str, int]]:
    """As messages have them."""
    return [
        {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
        for first, last, state, count in batches
    ]


def batches_of(values: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in values
    )


def _key(values: Any) -> SharePartitionKey:
    return SharePartitionKey(values["group_id"], values["topic_id"], values["partition"])


def _encode_snapshot(record: ShareSnapshotRecord) -> tuple[bytes, bytes | None]:
    key, state = _SNAPSHOT_KEY.encode(0, record.key._asdict()), record.state
    if state is None:
        return key, None
    values: Mapping[str, object] = {
        "snapshot_epoch": state.snapshot_epoch,
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.complete_count,
        "create_timestamp": state.create_timestamp_ms,
        "write_timestamp": state.write_timestamp_ms,
        "state_batches": batch_values(state.batches),
    }
    return key, _SNAPSHOT.encode(0, values)


def _decode_snapshot(key: bytes, value: bytes | None) -> ShareSnapshotRecord:
    found = _key(_SNAPSHOT_KEY.decode(key))
    if value is None:
        return ShareSnapshotRecord(found, None)
    values = _SNAPSHOT.decode(value)
    state = ShareState(
        values.snapshot_epoch,
        values.state_epoch,
        values.leader_epoch,
        values.start_offset,
        values.delivery_complete_count,
        values.create_timestamp,
        values.write_timestamp,
        batches_of(values.state_batches),
    )
    return ShareSnapshotRecord(found, state)


def _encode_update(record: ShareUpdateRecord) -> tuple[bytes, bytes]:
    values: Mapping[str, object] = {
        "snapshot_epoch": record.snapshot_epoch,
        "leader_epoch": record.leader_epoch,
        "start_offset": record.start_offset,
        "delivery_complete_count": record.complete_count,
        "state_batches": batch_values(record.batches),
    }
    return _update_key(record.key), _UPDATE.encode(0, values)


@lru_cache(maxsize=10_000)
def _update_key(key: SharePartitionKey) -> bytes:
    """It is the same for each acknowledgement."""
    return _UPDATE_KEY.encode(1, key._asdict())


def _decode_update(key: bytes, value: bytes | None) -> ShareUpdateRecord:
    values = _UPDATE.decode(value or b"")
    return ShareUpdateRecord(
        _key(_UPDATE_KEY.decode(key)),
        values.snapshot_epoch,
        values.leader_epoch,
        values.start_offset,
        values.delivery_complete_count,
        batches_of(values.state_batches),
    )


SHARE_STATE_FORMATS = RecordFormats(
    (
        RecordKind(ShareSnapshotRecord, (0,), _encode_snapshot, _decode_snapshot),
        RecordKind(ShareUpdateRecord, (1,), _encode_update, _decode_update, adds_to=0),
    )
)
