"""Offsets that were deleted before a read reached them, saved so that the job can count them.

Owns the saved losses: with option losses.path, the planner and each task save a small file there for each
range that they had to leave out. A task that runs again may save the same range or parts of it: an offset
counts once. Driver and executors must see the folder under the same path.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tidelog.pipeline.durable_files import create_json
from tidelog.pipeline.offsets import OffsetRange, Place


def note_losses(folder: str | None, lost: Iterable[OffsetRange]) -> None:
    """Save the lost ranges in `folder`, unless that is None."""
    if folder is None:
        return
    for each in lost:
        name = hashlib.sha256(json.dumps(each).encode()).hexdigest()[:32]
        create_json(Path(folder) / f"{name}.json", each)


def count_losses(folder: Path) -> int:
    """The number of lost offsets that are saved there."""
    places: dict[Place, list[tuple[int, int]]] = {}
    for path in folder.glob("*.json"):
        lost = OffsetRange(*json.loads(path.read_text()))
        places.setdefault(lost.place, []).append((lost.start, lost.end))
    count = 0
    for spans in places.values():
        reached = -1
        for start, end in sorted(spans):
            count += max(0, end - max(start, reached))
            reached = max(reached, end)
    return count


def left_out(wanted: Mapping[Place, tuple[int, int]], taken: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Those of the wanted offsets [start, end) that lie in no taken range."""
    ranges: dict[Place, list[OffsetRange]] = {}
    for each in taken:
        ranges.setdefault(each.place, []).append(each)
    for place, (start, end) in wanted.items():
        for each in sorted(ranges.get(place, ())):
            if start < each.start:
                yield OffsetRange(*place, start, min(each.start, end))
            start = max(start, each.end)
        if start < end:
            yield OffsetRange(*place, start, end)
