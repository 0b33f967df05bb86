"""Whether the replicas of a partition are the same, byte for byte.

Owns the comparison of their batches, read from the segment files by `protocol` alone. Invariant: replicas may
begin at different offsets, because each deletes its own segments, and differ in nothing else. `batches_of`
blocks, and needs stopped brokers.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from faults.checker import Finding, Kind
from faults.readback import segment_files
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import iter_batches

Batches = list[tuple[int, bytes]]
"""First offset and bytes of each batch of a log."""


def batches_of(data_dir: Path, topic: str, partition: int) -> Batches:
    """Raises ProtocolError."""
    found: Batches = []
    for path in segment_files(data_dir, topic, partition):
        data = path.read_bytes()
        found += [
            (header.base_offset, data[position : position + header.size_bytes])
            for position, header in iter_batches(data)
        ]
    return found


def differences_of(data_dirs: Sequence[Path], topic: str, partitions: int) -> list[Finding]:
    """Between the brokers with these folders, in all partitions of a topic. Blocking."""
    findings: list[Finding] = []
    for partition in range(partitions):
        try:
            found = {str(data_dir): batches_of(data_dir, topic, partition) for data_dir in data_dirs}
        except ProtocolError as error:
            findings.append(Finding(Kind.UNREADABLE, f"{topic}-{partition}: {error}"))
        else:
            findings += differences(f"{topic}-{partition}", found)
    return findings


def differences(name: str, replicas: Mapping[str, Batches]) -> list[Finding]:
    """Of the replicas of partition `name`, by their brokers: the first difference of each from the first."""
    begin = max((batches[0][0] for batches in replicas.values() if batches), default=0)
    logs = {
        broker: [(offset, batch) for offset, batch in batches if offset >= begin]
        for broker, batches in replicas.items()
    }
    findings = []
    first, *others = logs
    for other in others:
        for mine, theirs in zip_longest(logs[first], logs[other]):
            if mine != theirs:
                texts = " ".join(
                    f"{broker} has {_text_of(each)};" for broker, each in ((first, mine), (other, theirs))
                )
                findings.append(Finding(Kind.DIFFERENT, f"replicas of {name}: {texts.rstrip(';')}"))
                break
    return findings


def _text_of(found: tuple[int, bytes] | None) -> str:
    return "nothing more" if found is None else f"{len(found[1])} bytes at offset {found[0]}"
