"""What a leader knows of leader epochs (OffsetForLeaderEpoch), for a follower. On the event loop."""

from __future__ import annotations

from tidelog.broker.peers.peers import Peers
from tidelog.protocol.errors import ApiError, error_code
from tidelog.protocol.schema import ApiKey


async def end_of_epoch(
    peers: Peers, node_id: int, leader_id: int, topic: str, partition: int, leader_epoch: int, epoch: int
) -> tuple[int, int]:
    """(epoch, end offset) of the latest epoch up to `epoch` that the leader of `leader_epoch` has, or
    (-1, -1). `node_id` is this broker. Raises ApiError."""
    asked = {"partition": partition, "current_leader_epoch": leader_epoch, "leader_epoch": epoch}
    answer = await peers.call(
        leader_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {"replica_id": node_id, "topics": [{"topic": topic, "partitions": [asked]}]},
    )
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise ApiError(error_code(found.error_code))
    return found.leader_epoch, found.end_offset


async def end_of_log(
    peers: Peers, node_id: int, asked_id: int, topic: str, partition: int, leader_epoch: int
) -> tuple[int, int]:
    """(epoch, end offset) of the last record that a broker has of a partition that nobody leads, durably.
    `node_id` is this broker. Raises ApiError."""
    return await end_of_epoch(peers, node_id, asked_id, topic, partition, leader_epoch, leader_epoch)
