"""What a stream's checkpoint says: the query that it belongs to, and what Spark planned for a batch.

The checkpoint is a local folder, or in a file system that Spark reaches by a scheme: the driver's Java reads
it, with Spark's settings. Through Spark Connect, pyarrow reads it, with the credentials in the environment of
Spark's Python processes.

Owns the reading of two files of Spark's checkpoint: `metadata`, and `offsets/N`, which Spark writes before
batch N runs, never changes, and reads again when it repeats the batch. It holds the time of its planning, so
two drivers that plan the same batch on copies of a checkpoint have different files.

Invariants: nothing is written here.
"""

import hashlib
import json
import re
from typing import NamedTuple

from tidelog.pipeline.driver import read_by_driver
from tidelog.pipeline.exactly_once.decision import ExactlyOnceError
from tidelog.pipeline.paths import local_path

_DIGITS = 16


class PlannedBatch(NamedTuple):
    """What Spark planned for a batch: a digest of it, and when it was planned. The defaults: not known."""

    digest: str = ""
    planned_ms: int | None = None


def query_of(folder: str) -> str:
    """The id of the query whose checkpoint this is. Raises ExactlyOnceError."""
    try:
        return str(json.loads(_read(folder, "metadata"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(f"{folder}/metadata", error) from None


def planned_batch(folder: str, batch: int) -> PlannedBatch:
    """What was planned for this batch. Raises ExactlyOnceError."""
    name = f"offsets/{batch}"
    try:
        content = _read(folder, name)
        # The first line is a version, the second what holds for all sources.
        planned_ms = int(json.loads(content.splitlines()[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _unreadable(f"{folder}/{name}", error) from None
    return PlannedBatch(hashlib.sha256(content).hexdigest()[:_DIGITS], planned_ms)


def _read(folder: str, name: str) -> bytes:
    """Raises OSError, ValueError."""
    if (path := local_path(folder)) is not None:
        return (path / name).read_bytes()
    if (content := read_by_driver(f"{folder}/{name}")) is not None:
        return content
    from pyarrow.fs import FileSystem

    # Hadoop's names of a store have more letters than Arrow's.
    system, root = FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", folder))
    with system.open_input_stream(f"{root}/{name}") as file:
        return bytes(file.read())


def _unreadable(path: str, error: Exception) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"the checkpoint cannot be read at {path}: {error!r}. delivery=exactly_once compares it with what the"
        " broker knows: set checkpointLocation to a folder that the driver can read"
    )
