"""Offset commits in the log of `__consumer_offsets`: keys and values, and the key of a group's metadata.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 0 and 1 an offset
commit, 2 a group's metadata.

Source: the JSON definitions of the same names. The topic id of an offset commit (KIP-848) is a tagged field.
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int32, Struct, field
from tidelog.protocol.types import LeaderEpoch, Offset, TimestampMs


class OffsetCommitKey(Struct):
    group: str = field("0-1")
    topic: str = field("0-1")
    partition: Int32 = field("0-1")


class OffsetCommitValue(Struct, flexible="4+"):
    offset: Offset
    leader_epoch: LeaderEpoch = field("3+", default=-1, ignorable=True)
    metadata: str
    commit_timestamp: TimestampMs
    # -1: the broker's retention applies.
    expire_timestamp: TimestampMs = field("1", default=-1, ignorable=True)
    topic_id: UUID = field("4+", ignorable=True, tag=0)


class GroupMetadataKey(Struct):
    group: str = field("2")
