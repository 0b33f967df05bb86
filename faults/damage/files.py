"""The kinds of files in a data folder, and the kinds of damage that a bad disk or a mistake does to one.

Owns both lists. Invariants: a file of an unknown kind raises UnknownFileError, so a new kind of file must be
added here and is tried. The same random numbers on the same bytes do the same damage. Blocking; no broker may
run on the folder.
"""

import random
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.protocol.records import iter_batches


class FileKind(StrEnum):
    """What a file of a data folder is."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    FIRST_DIRTY_OFFSET = "cleaner-offset-checkpoint"
    CLEANED_OFFSET = "cleaned-offset-checkpoint"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    LOG_STARTS = "log-start-offset-checkpoint"
    BOOT_ID = ".boot_id"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    CATALOG = "cluster.db"
    CATALOG_LOG = "cluster.db-wal"
    CATALOG_COPY = "cluster.copy"
    IDENTITY = "meta.properties"
    SCRATCH = "without content that counts"


class Damage(StrEnum):
    """The kinds of damage that are done to a file."""

    FLIP = "bits flipped"
    CUT = "cut short"
    CUT_AT_BATCH = "cut short between two batches"
    EMPTY = "emptied"
    ZERO_TAIL = "tail zeroed"
    ZERO_MIDDLE = "512 bytes zeroed"
    DELETE = "deleted"
    SWAP = "swapped with another of its kind"


class UnknownFileError(Exception):
    """A file of a kind that no trial knows; the message names it."""


_IN_A_PARTITION: Final = (
    (re.compile(r"\d{20}\.log"), FileKind.LOG),
    (re.compile(r"\d{20}\.index"), FileKind.INDEX),
    (re.compile(r"\d{20}\.timeindex"), FileKind.TIME_INDEX),
    (re.compile(r"\d{20}\.txnindex"), FileKind.TRANSACTION_INDEX),
    (re.compile(r"\d{20}.*\.snapshot"), FileKind.SNAPSHOT),
    (re.compile(r"leader-epoch-checkpoint"), FileKind.LEADER_EPOCHS),
    (re.compile(r"partition\.metadata"), FileKind.PARTITION_METADATA),
    (re.compile(r"cleaner-offset-checkpoint"), FileKind.FIRST_DIRTY_OFFSET),
    (re.compile(r"cleaned-offset-checkpoint"), FileKind.CLEANED_OFFSET),
    (re.compile(r".*\.(tmp|deleted|cleaned|swap)"), FileKind.SCRATCH),
)
_IN_THE_FOLDER: Final = (
    (re.compile(r"recovery-point-offset-checkpoint"), FileKind.RECOVERY_POINTS),
    (re.compile(r"log-start-offset-checkpoint"), FileKind.LOG_STARTS),
    (re.compile(r"\.boot_id"), FileKind.BOOT_ID),
    (re.compile(r"\.kafka_cleanshutdown"), FileKind.CLEAN_SHUTDOWN),
    (re.compile(r"cluster\.db"), FileKind.CATALOG),
    (re.compile(r"cluster\.db-wal"), FileKind.CATALOG_LOG),
    (re.compile(r"cluster\.copy"), FileKind.CATALOG_COPY),
    (re.compile(r"meta\.properties"), FileKind.IDENTITY),
    (re.compile(r"\.lock|cluster\.db-shm|.*\.tmp|cluster\.(db|copy)\.kept-.*"), FileKind.SCRATCH),
)
_OF_PARTITIONS: Final = frozenset(kind for _, kind in _IN_A_PARTITION)
_SWAPPED: Final = frozenset(
    (
        *(FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX),
        *(FileKind.SNAPSHOT, FileKind.PARTITION_METADATA),
    )
)
_BLOCK_BYTES: Final = 512
_MOST_FLIPS: Final = 3


def kind_of(path: Path, data_dir: Path) -> FileKind:
    """The kind of one file. Raises UnknownFileError."""
    kinds = _IN_THE_FOLDER if path.parent == data_dir else _IN_A_PARTITION
    for pattern, kind in kinds:
        if pattern.fullmatch(path.name):
            return kind
    raise UnknownFileError(
        f"{path.relative_to(data_dir)} is of a kind that faults.damage.files does not know"
    )


def files_by_kind(data_dir: Path) -> dict[FileKind, list[Path]]:
    """The files of a data folder whose content counts. Raises UnknownFileError."""
    found: dict[FileKind, list[Path]] = {}
    for path in sorted(each for each in data_dir.rglob("*") if each.is_file()):
        kind = kind_of(path, data_dir)
        if kind is not FileKind.SCRATCH:
            found.setdefault(kind, []).append(path)
    return found


def is_of_a_partition(kind: FileKind) -> bool:
    """Whether each partition has files of this kind; else the data folder has one."""
    return kind in _OF_PARTITIONS


def damages_of(kind: FileKind) -> Sequence[Damage]:
    return [
        damage
        for damage in Damage
        if (damage is not Damage.CUT_AT_BATCH or kind is FileKind.LOG)
        and (damage is not Damage.SWAP or kind in _SWAPPED)
    ]


class Done(NamedTuple):
    """A damage that was done: `files` are those that changed, the first of them the one that was meant."""

    kind: FileKind
    damage: Damage
    files: tuple[Path, ...]
    details: str

    def text(self, data_dir: Path) -> str:
        return f"{self.files[0].relative_to(data_dir)} {self.damage} ({self.details})"


def apply(
    kind: FileKind, damage: Damage, path: Path, others: Sequence[Path], rng: random.Random
) -> Done | None:
    """Do it, or nothing where this file leaves nothing to do. `others` are files of its kind to swap with."""
    data = path.read_bytes()
    if damage is Damage.DELETE:
        path.unlink()
        return Done(kind, damage, (path,), f"{len(data)} bytes")
    if damage is Damage.SWAP:
        # A segment of another log with the same offsets is intact by all that Kafka's format shows.
        different = [other for other in others if other.name != path.name or kind is not FileKind.LOG]
        # One of the two would just be emptied, which is another damage.
        different = [other for other in different if other.read_bytes() not in (data, b"")]
        if not data or not different:
            return None
        other = rng.choice(different)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return Done(kind, damage, (path, other), f"with {other.parent.name}/{other.name}")
    changed, details = _changed(damage, data, len(data.rstrip(b"\0")), rng)
    if changed == data:
        return None
    path.write_bytes(changed)
    return Done(kind, damage, (path,), details)


def _changed(damage: Damage, data: bytes, used: int, rng: random.Random) -> tuple[bytes, str]:
    """The bytes after the damage; a file of zeros alone has nothing that could be damaged."""
    if not used:
        return data, ""
    at = rng.randrange(used)
    match damage:
        case Damage.FLIP:
            places = {at} | {rng.randrange(used) for _ in range(rng.randrange(_MOST_FLIPS))}
            flipped = bytearray(data)
            for place in places:
                flipped[place] ^= 1 << rng.randrange(8)
            return bytes(flipped), f"one bit at byte {', '.join(map(str, sorted(places)))}"
        case Damage.CUT_AT_BATCH:
            ends = [position for position, _ in iter_batches(data)][1:]
            at = rng.choice(ends) if ends else 0
            return data[:at], f"to {at} of {len(data)} bytes"
        case Damage.EMPTY:
            return b"", f"of {len(data)} bytes"
        case Damage.ZERO_TAIL:
            return data[:at] + bytes(len(data) - at), f"from byte {at} of {len(data)}"
        case Damage.ZERO_MIDDLE:
            first = at - at % _BLOCK_BYTES
            end = min(first + _BLOCK_BYTES, len(data))
            return data[:first] + bytes(end - first) + data[end:], f"from byte {first}"
        case _:
            return data[:at], f"to {at} of {len(data)} bytes"
