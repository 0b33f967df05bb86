"""Records of share partitions in the log of `__share_group_state`: keys and values.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 0 is a snapshot, 1
an update of the newest snapshot.

Source: the JSON definitions of the same names in Kafka's share coordinator (KIP-932, KIP-1226).
"""

from tidelog.protocol.messages.declaration import Field, Message, message
from tidelog.protocol.messages.share_group_state import STATE_BATCHES

_DELIVERY_COMPLETE_COUNT = Field("delivery_complete_count", "int32", default=-1, tag=0)


def _key(name: str, version: str) -> Message:
    return message(
        name,
        "",
        Field("group_id", "string", version),
        Field("topic_id", "uuid", version),
        Field("partition", "int32", version),
    )


SHARE_SNAPSHOT_KEY = _key("ShareSnapshotKey", "0")
SHARE_SNAPSHOT_VALUE = message(
    "ShareSnapshotValue",
    "0+",
    Field("snapshot_epoch", "int32"),
    Field("state_epoch", "int32"),
    Field("leader_epoch", "int32"),
    Field("start_offset", "int64"),
    _DELIVERY_COMPLETE_COUNT,
    Field("create_timestamp", "int64"),
    Field("write_timestamp", "int64"),
    STATE_BATCHES,
)

SHARE_UPDATE_KEY = _key("ShareUpdateKey", "1")
SHARE_UPDATE_VALUE = message(
    "ShareUpdateValue",
    "0+",
    Field("snapshot_epoch", "int32"),
    Field("leader_epoch", "int32"),
    Field("start_offset", "int64"),
    _DELIVERY_COMPLETE_COUNT,
    STATE_BATCHES,
)
