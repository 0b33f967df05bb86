"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, meta.properties.

Owns their formats, as Kafka writes them: a version line, a count line, then one entry per line. Also
`.boot_id`, which is ours: the boot id of the machine when the folder was last used.

Invariants: a file that cannot be understood raises CheckpointError; what to do then is the caller's decision,
because each of these files can be rebuilt or is not necessary.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tidelog.broker.storage.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
BOOT_ID = ".boot_id"
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEANED_OFFSET = "cleaned-offset-checkpoint"
"""Ours, and in each partition's folder: Kafka treats any gap as a cleaned one."""
FIRST_DIRTY_OFFSET = "cleaner-offset-checkpoint"
COPIED_OFFSET = "copied-offset-checkpoint"
"""Ours, of a leader: remote storage holds, or held, records of the partition, up to here or later."""
PRODUCER_IDS_BOUND = "producer-ids-bound-checkpoint"
"""Ours: the highest bound of producer ids that a broker among others saw in the catalog."""
CATALOG_COMMIT = "catalog-commit-checkpoint"
"""Ours: the newest commit of the catalog that a broker over etcd saw, by its revision and its nonce."""
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
_DIRECTORY_ID = "directory.id"
_INCARNATIONS = "broker.incarnations"
"""Ours."""
_LOCK_PLACE = "broker.lock.place"
"""Ours."""
_NO_NONCE = "-"

TopicPartition = tuple[str, int]


class FolderIdentity(NamedTuple):
    """The cluster and the broker to which a data folder belongs."""

    cluster_id: str
    node_id: int


class FolderStarts(NamedTuple):
    """What distinguishes a data folder from others of the same broker, and from older copies of it."""

    directory_id: UUID
    incarnations: tuple[UUID, ...]
    """Under which a broker was registered with it last, or may have been; the last one is the newest."""
    lock_place: str = ""
    """Which file the newest one holds as its lock of the folder (`Disk.place_of`); empty where not known."""


class CheckpointError(ValueError):
    """The file is not what Kafka would have written. The message names the file and the line."""


def _entries(disk: Disk, path: Path, fields: int) -> list[list[str]]:
    text = disk.read_file(path).decode("utf-8", "replace")
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit():
        raise CheckpointError(f"{path}: expected version 0 and a count in the first two lines")
    if not text.endswith("\n"):
        raise CheckpointError(f"{path}: the last line is cut short")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != int(lines[1]) or any(len(entry) != fields for entry in entries):
        raise CheckpointError(f"{path}: expected {lines[1]} lines of {fields} fields after the count")
    return entries


def _contents(lines: Sequence[str]) -> list[bytes]:
    return ["\n".join(["0", str(len(lines)), *lines, ""]).encode()]


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """Topic and partition -> offset; empty when there is no file. Raises CheckpointError."""
    if not disk.exists(path):
        return {}
    try:
        offsets = {
            (topic, int(partition)): int(offset) for topic, partition, offset in _entries(disk, path, 3)
        }
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if (least := min(offsets.values(), default=0)) < 0:
        raise CheckpointError(f"{path}: expected offsets of 0 or more, got {least}")
    return offsets


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    disk.replace_file(path, _contents(lines))


def read_leader_epochs(disk: Disk, path: Path) -> list[tuple[int, int]]:
    """(epoch, first offset) in ascending order; empty when there is no file. Raises CheckpointError."""
    if not disk.exists(path):
        return []
    try:
        epochs = [(int(epoch), int(offset)) for epoch, offset in _entries(disk, path, 2)]
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if any(low[0] >= high[0] or low[1] > high[1] for low, high in pairwise(epochs)):
        raise CheckpointError(f"{path}: epochs and offsets must ascend")
    return epochs


def write_leader_epochs(
    disk: Disk, path: Path, epochs: Sequence[tuple[int, int]], *, syncs_name: bool = True
) -> None:
    contents = _contents([f"{epoch} {offset}" for epoch, offset in epochs])
    disk.replace_file(path, contents, syncs_name=syncs_name)


def read_number(disk: Disk, path: Path) -> int:
    """The one number in a file, 0 when there is no file. Raises CheckpointError."""
    if not disk.exists(path):
        return 0
    entries = _entries(disk, path, 1)
    if len(entries) != 1 or not entries[0][0].isdigit():
        raise CheckpointError(f"{path}: expected one number, got {entries}")
    return int(entries[0][0])


def write_number(disk: Disk, path: Path, number: int) -> None:
    disk.replace_file(path, _contents([str(number)]))


def read_commit(disk: Disk, path: Path) -> tuple[int, str]:
    """The revision and the nonce in a file; (0, "") when there is no file. Raises CheckpointError."""
    if not disk.exists(path):
        return 0, ""
    entries = _entries(disk, path, 2)
    if len(entries) != 1 or not entries[0][0].isdigit():
        raise CheckpointError(f"{path}: expected one revision and its nonce, got {entries}")
    ((revision, nonce),) = entries
    return int(revision), "" if nonce == _NO_NONCE else nonce


def write_commit(disk: Disk, path: Path, commit: tuple[int, str]) -> None:
    revision, nonce = commit
    disk.replace_file(path, _contents([f"{revision} {nonce or _NO_NONCE}"]))


def read_topic_id(disk: Disk, folder: Path) -> UUID | None:
    """The topic id in partition.metadata, None when there is no file or nothing but zeros in it. Raises
    CheckpointError."""
    path = folder / PARTITION_METADATA
    if not disk.exists(path):
        return None
    lines = disk.read_file(path).strip(b"\0").decode("utf-8", "replace").splitlines()
    if not lines:
        return None  # What a power cut leaves of a file that was just made.
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        if fields["version"] != "0":
            raise ValueError(f"expected version 0, got {fields['version']}")
        return UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def write_topic_id(disk: Disk, folder: Path, topic_id: UUID) -> None:
    """Write partition.metadata, not durably yet: see `sync_topic_id`."""
    encoded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")
    disk.replace_file(folder / PARTITION_METADATA, [b"version: 0\ntopic_id: " + encoded], durably=False)


def sync_topic_id(disk: Disk, folder: Path) -> None:
    """Make partition.metadata durable if there is one, its name apart. Raises OSError."""
    try:
        fd = disk.open(folder / PARTITION_METADATA, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        disk.fdatasync(fd)
    finally:
        disk.close(fd)


def read_identity(disk: Disk, data_dir: Path) -> FolderIdentity | None:
    """What meta.properties says; None when there is no file. Raises CheckpointError."""
    fields = _meta_properties(disk, data_dir)
    if fields is None:
        return None
    try:
        if fields["version"] != "1" or not fields["cluster.id"]:
            raise ValueError("expected version=1 and a cluster.id")
        return FolderIdentity(fields["cluster.id"], int(fields["node.id"]))
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{data_dir / META_PROPERTIES}: {error}") from error


def read_starts(disk: Disk, data_dir: Path) -> FolderStarts | None:
    """What meta.properties says; None if it is not in the file. Raises CheckpointError."""
    fields = _meta_properties(disk, data_dir) or {}
    if _DIRECTORY_ID not in fields:
        return None
    try:
        directory_id = UUID(bytes=base64.urlsafe_b64decode(fields[_DIRECTORY_ID] + "=="))
        known = fields.get(_INCARNATIONS, "")
        incarnations = tuple(map(UUID, known.split(",") if known else ()))
        return FolderStarts(directory_id, incarnations, fields.get(_LOCK_PLACE, ""))
    except ValueError as error:
        raise CheckpointError(f"{data_dir / META_PROPERTIES}: {error}") from error


def _meta_properties(disk: Disk, data_dir: Path) -> Mapping[str, str] | None:
    path = data_dir / META_PROPERTIES
    if not disk.exists(path):
        return None
    lines = disk.read_file(path).decode("utf-8", "replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def write_identity(
    disk: Disk, data_dir: Path, identity: FolderIdentity, starts: FolderStarts | None = None
) -> None:
    """Write meta.properties, durably."""
    lines = ["version=1", f"cluster.id={identity.cluster_id}", f"node.id={identity.node_id}"]
    if starts is not None:
        lines.append(
            f"{_DIRECTORY_ID}={base64.urlsafe_b64encode(starts.directory_id.bytes).rstrip(b'=').decode()}"
        )
        lines.append(f"{_INCARNATIONS}={','.join(each.hex for each in starts.incarnations)}")
        lines.append(f"{_LOCK_PLACE}={starts.lock_place}")
    disk.replace_file(data_dir / META_PROPERTIES, ["\n".join([*lines, ""]).encode()])


def is_same_boot(disk: Disk, folder: Path) -> bool:
    """Whether the machine has not started again since `note_boot` was called for `folder`. Raises OSError.

    If so, everything that a process wrote still exists, durable or not. False if it is not known, as
    after a failed write: a start needs the answer only to report what probably happened.
    """
    path, boot_id = folder / BOOT_ID, disk.boot_id().encode()
    return bool(boot_id) and disk.exists(path) and bytes(disk.read_file(path)) == boot_id


def note_boot(disk: Disk, folder: Path) -> None:
    """Save the machine's current boot id for the next start. Only after the logs were recovered: what a power
    cut left is in them until then, also when this process is killed."""
    # Not durably: if a power cut removes it, the next start has the same facts as without it.
    with suppress(OSError):
        disk.replace_file(folder / BOOT_ID, [disk.boot_id().encode()], durably=False)
