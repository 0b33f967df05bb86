"""A power cut on the files of a killed broker: bytes that were never synced are lost, or come back as zeros.

Owns the choice of what is lost: only records at or beyond offsets that the caller knows to be promised to
nobody, and nothing below the recovery point, which says itself what is durable. Blocking; the broker must be
dead. Called by `faults.saboteur`.
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path

from faults.readback import segment_files
from protocol.errors import ProtocolError
from protocol.records import iter_batches

_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def cut_power(data_dir: Path, topic: str, durable: Mapping[int, int], rng: random.Random) -> int:
    """Take away a random part of what lies beyond `durable` (partition -> offset); bytes that were lost.

    A file ends early, or its tail reads as zeros, as file systems leave it that had noted the new length
    but not written the data. Later segments of the partition lose everything.
    """
    points = _recovery_points(data_dir / _RECOVERY_POINTS, topic)
    lost = 0
    for partition, offset in durable.items():
        offset = max(offset, points.get(partition, 0))
        is_cut = False
        for path in segment_files(data_dir, topic, partition):
            size = path.stat().st_size
            start = 0 if is_cut else _position_of(path, offset)
            if start >= size:
                continue
            at = 0 if is_cut else rng.randint(start, size)
            is_cut = True
            lost += size - at
            os.truncate(path, at)
            if rng.random() < 0.3:
                os.truncate(path, size)
    return lost


def _position_of(path: Path, offset: int) -> int:
    """Where the first batch with records at or beyond `offset` begins; the size when there is none."""
    data = path.read_bytes()
    position = 0
    try:
        for position, header in iter_batches(data):
            if header.last_offset >= offset:
                return position
            position += header.size_bytes
    except ProtocolError:
        # A tail of zeros from an earlier cut that no start has cleaned up yet.
        pass
    return position


def _recovery_points(path: Path, topic: str) -> dict[int, int]:
    if not path.exists():
        return {}
    fields = (line.split() for line in path.read_text().splitlines()[2:])
    return {int(partition): int(offset) for name, partition, offset in fields if name == topic}
