"""What a stream's checkpoint says: the query that it belongs to, and what Spark planned for a batch.

Owns the reading of two files of Spark's checkpoint: `metadata`, and `offsets/N`, which Spark writes before
batch N runs, never changes, and reads again when it repeats the batch. It holds the time of its planning, so
two drivers that plan the same batch on copies of a checkpoint have different files.

Invariants: nothing is written here.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from tidelog.pipeline.exactly_once.decision import ExactlyOnceError

_DIGITS = 16


class PlannedBatch(NamedTuple):
    """What Spark planned for a batch: a digest of it, and when it was planned. The defaults: not known."""

    digest: str = ""
    planned_ms: int | None = None


def query_of(folder: Path) -> str:
    """The id of the query whose checkpoint this is. Raises ExactlyOnceError."""
    path = folder / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from None


def planned_batch(folder: Path, batch: int) -> PlannedBatch:
    """What was planned for this batch. Raises ExactlyOnceError."""
    path = folder / "offsets" / str(batch)
    try:
        content = path.read_bytes()
        # The first line is a version, the second what holds for all sources.
        planned_ms = int(json.loads(content.splitlines()[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _unreadable(path, error) from None
    return PlannedBatch(hashlib.sha256(content).hexdigest()[:_DIGITS], planned_ms)


def _unreadable(path: Path, error: Exception) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"the checkpoint cannot be read at {path}: {error!r}. delivery=exactly_once compares it with what the"
        " broker knows: set checkpointLocation to a folder that the driver sees as a path"
    )
