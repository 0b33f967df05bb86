"""What a leader knows of the producers of a partition before its log begins (FetchSnapshot), for a follower.

Owns the putting together of the pieces. Invariant: what is returned is of one moment and complete, and at
most `MOST_BYTES` long. On the event loop.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.peers.peers import Peers
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.schema import ApiKey

PIECE_BYTES: Final = 8 << 20
MOST_BYTES: Final = 1 << 30


async def fetch_snapshot(
    peers: Peers, node_id: int, leader_id: int, topic: str, partition: int, leader_epoch: int
) -> bytes:
    """The snapshot as `LogManager.start_over` takes it. `node_id` is this broker. Raises ApiError."""
    pieces = bytearray()
    offset = size = -1
    while len(pieces) != size:
        asked = {
            "partition": partition,
            "current_leader_epoch": leader_epoch,
            "snapshot_id": {"end_offset": offset, "epoch": -1},
            "position": len(pieces),
        }
        answer = await peers.call(
            leader_id,
            ApiKey.FETCH_SNAPSHOT,
            {
                "replica_id": node_id,
                "max_bytes": PIECE_BYTES,
                "topics": [{"name": topic, "partitions": [asked]}],
            },
        )
        if answer.error_code:
            raise ApiError(error_code(answer.error_code))
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise ApiError(error_code(found.error_code))
        piece = found.unaligned_records
        is_first = not pieces
        is_wrong = found.position != len(pieces) or len(pieces) + len(piece) > found.size
        if is_first:
            offset, size = found.snapshot_id.end_offset, found.size
        if is_wrong or not piece or size > MOST_BYTES or found.snapshot_id.end_offset != offset:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"broker {leader_id} sent no snapshot of {topic}-{partition}: bytes {found.position} to"
                f" {found.position + len(piece)} of {found.size}, after {len(pieces)} of {size}",
            )
        pieces += piece
    return bytes(pieces)
