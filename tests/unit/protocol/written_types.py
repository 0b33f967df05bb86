"""To a type checker a message is its declaration: a class when it is decoded, a dict when it is encoded.

`make types` reads this file: without one of these errors, its `type: ignore` is an error.
"""

from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf


def handle(request: types.HeartbeatRequest) -> DictOf[types.HeartbeatResponse]:
    if request.group == "":  # type: ignore[attr-defined]
        return {"eror_code": 0}  # type: ignore[misc]
    if request.group_instance_id.startswith("a"):  # type: ignore[union-attr]
        return {"error_code": request.member_id}  # type: ignore[typeddict-item]
    return {"error_code": request.generation_id}


def commit(topic: str, offset: int, metadata: memoryview) -> DictOf[types.OffsetCommitRequest]:
    partition: DictOf[types.OffsetCommitRequestPartition] = {"committed_offset": offset}
    protocols: DictOf[types.JoinGroupRequest] = {"protocols": ({"name": "range", "metadata": metadata},)}
    assert protocols
    return {"topics": [{"topic": topic, "partitions": [partition, partition]}]}  # type: ignore[typeddict-item]
