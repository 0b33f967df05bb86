"""Offset commits in the log of `__consumer_offsets`: keys and values, and the key of a group's metadata.

Declarations only. A record's key and value each begin with an int16 version, see
`protocol.coordinator_records`. The version of a key also says what kind of record it is: 0 and 1 an offset
commit, 2 a group's metadata.

Source: the JSON definitions of the same names. The topic id of an offset commit (KIP-848) is a tagged field.
"""

from tidelog.protocol.messages.declaration import Field, message

OFFSET_COMMIT_KEY = message(
    "OffsetCommitKey",
    "",
    Field("group", "string", "0-1"),
    Field("topic", "string", "0-1"),
    Field("partition", "int32", "0-1"),
)

OFFSET_COMMIT_VALUE = message(
    "OffsetCommitValue",
    "4+",
    Field("offset", "int64"),
    Field("leader_epoch", "int32", "3+", default=-1, ignorable=True),
    Field("metadata", "string"),
    Field("commit_timestamp", "int64"),
    Field("expire_timestamp", "int64", "1", default=-1, ignorable=True),
    Field("topic_id", "uuid", "4+", tag=0, ignorable=True),
)

GROUP_METADATA_KEY = message("GroupMetadataKey", "", Field("group", "string", "2"))
