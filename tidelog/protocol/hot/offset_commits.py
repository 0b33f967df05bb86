"""Keys and values of offset commits in the form in which they are written: hand-tuned twins of the codecs.

Owns this one form: a key of version 1, a value of version 4 whose metadata has at most 126 bytes. For all
else, valid or not, the answer is None, and the codecs of `messages.group_records` decide. A commit of many
partitions is one record per partition, and a start reads all of them.

Invariant: where the answer is not None, it is that of the codecs (`tests/property/test_hot.py`).
"""

from struct import Struct, error
from typing import Final, NamedTuple
from uuid import UUID

_LENGTH: Final = Struct(">hH")
_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 4
_HEAD: Final = Struct(">hqiB")
_TIMESTAMP: Final = Struct(">q")
_PARTITION: Final = Struct(">i")
_MAX_NAME_BYTES: Final = 32767
_MAX_METADATA_BYTES: Final = 126
"""The length plus one is then a varint of one byte."""
_NO_TAGS: Final = b"\0"
_TOPIC_ID: Final = b"\x01\x00\x10"
"""One tagged field: tag 0, 16 bytes."""
_NO_TOPIC_ID: Final = UUID(int=0)


class OffsetCommit(NamedTuple):
    """The fields of a key and a value that can have this form."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    topic_id: UUID


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes | None:
    try:
        group_bytes, topic_bytes = group.encode(), topic.encode()
        if len(group_bytes) > _MAX_NAME_BYTES or len(topic_bytes) > _MAX_NAME_BYTES:
            return None
        return b"".join(
            (
                _LENGTH.pack(_KEY_VERSION, len(group_bytes)),
                group_bytes,
                len(topic_bytes).to_bytes(2, "big"),
                topic_bytes,
                _PARTITION.pack(partition),
            )
        )
    except (UnicodeEncodeError, error):
        return None


def encode_offset_commit_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: UUID
) -> bytes | None:
    try:
        text = metadata.encode()
        if len(text) > _MAX_METADATA_BYTES:
            return None
        head = _HEAD.pack(_VALUE_VERSION, offset, leader_epoch, len(text) + 1)
        tags = _NO_TAGS if topic_id == _NO_TOPIC_ID else _TOPIC_ID + topic_id.bytes
        return b"".join((head, text, _TIMESTAMP.pack(commit_timestamp), tags))
    except (UnicodeEncodeError, error):
        return None


def decode_offset_commit(key: bytes, value: bytes) -> OffsetCommit | None:
    try:
        key_version, size = _LENGTH.unpack_from(key)
        group_end = _LENGTH.size + size
        topic_at = group_end + 2
        topic_end = topic_at + int.from_bytes(key[group_end:topic_at], "big")
        value_version, offset, leader_epoch, length = _HEAD.unpack_from(value)
        text_end = _HEAD.size + length - 1
        tags = value[text_end + _TIMESTAMP.size :]
        is_of_this_form = (
            key_version == _KEY_VERSION
            and value_version == _VALUE_VERSION
            and max(size, topic_end - topic_at) <= _MAX_NAME_BYTES
            and topic_end + _PARTITION.size == len(key)
            and 1 <= length <= _MAX_METADATA_BYTES + 1
            and (tags == _NO_TAGS or (tags[:3] == _TOPIC_ID and len(tags) == 3 + 16))
        )
        if not is_of_this_form:
            return None
        return OffsetCommit(
            key[_LENGTH.size : group_end].decode(),
            key[topic_at:topic_end].decode(),
            _PARTITION.unpack_from(key, topic_end)[0],
            offset,
            leader_epoch,
            value[_HEAD.size : text_end].decode(),
            _TIMESTAMP.unpack_from(value, text_end)[0],
            _NO_TOPIC_ID if tags == _NO_TAGS else UUID(bytes=tags[3:]),
        )
    except (UnicodeDecodeError, error):
        return None
