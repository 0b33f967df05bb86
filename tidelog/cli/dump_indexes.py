"""The entries of `.index`, `.timeindex`, `.txnindex` and `.snapshot` files as lines.

Each function prints one file and says whether it is whole. `.index` and `.timeindex` are declared here, as
Kafka has them, and not read by the code that writes them: a second reader finds what that writes wrongly.

Source: Kafka's OffsetIndex and TimeIndex.
"""

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from construct import Construct, Int32sb, Int64sb, Struct

from tidelog.broker.storage.producer_table import ProducerTable
from tidelog.broker.storage.snapshot import decode_snapshot
from tidelog.broker.storage.transaction_index import decode_entries
from tidelog.cli.tables import counted, format_timestamp, print_table

_OFFSET_ENTRY = Struct("relative_offset" / Int32sb, "position" / Int32sb).compile()
_TIME_ENTRY = Struct("timestamp" / Int64sb, "relative_offset" / Int32sb).compile()


def dump_offset_index(path: Path) -> bool:
    """Offset and position of each entry. Raises OSError."""
    base = _base_offset(path)
    entries, whole = _entries(path, _OFFSET_ENTRY)
    print_table(("OFFSET", "POSITION"), [(base + each.relative_offset, each.position) for each in entries])
    return whole


def dump_time_index(path: Path) -> bool:
    """Timestamp and offset of each entry. Raises OSError."""
    base = _base_offset(path)
    entries, whole = _entries(path, _TIME_ENTRY)
    rows = [
        (format_timestamp(each.timestamp), each.timestamp, base + each.relative_offset) for each in entries
    ]
    print_table(("TIME", "TIMESTAMP", "OFFSET"), rows)
    return whole


def dump_transaction_index(path: Path) -> bool:
    """Producer, first offset and marker of each aborted transaction, and the last stable offset after it.
    Raises OSError."""
    aborted, problem = decode_entries(path.read_bytes())
    print_table(("PRODUCER ID", "FIRST OFFSET", "MARKER", "LAST STABLE OFFSET"), aborted)
    if problem:
        print(f"error: {path} is damaged: {problem}", file=sys.stderr)
    return not problem


def dump_snapshot(path: Path) -> bool:
    """Every producer, the longest idle first, with the batches remembered of it. Raises OSError."""
    try:
        offset, frozen = decode_snapshot(path.read_bytes())
        table = ProducerTable.from_frozen(frozen)
    except ValueError as error:
        print(f"error: {path} is damaged: {error}", file=sys.stderr)
        return False
    print(f"{counted(len(table), 'producer')} up to offset {offset}")
    for entry in map(table.entry, table.in_idle_order()):
        print(
            f"producer={entry.producer_id} epoch={entry.producer_epoch} last_sequence={entry.last_sequence}"
            f" last_append={format_timestamp(entry.last_append_ms)}"
        )
        for batch in entry.batches:
            print(
                f"  offsets={batch.base_offset}-{batch.last_offset} last_sequence={batch.last_sequence}"
                f" time={format_timestamp(batch.timestamp)}"
            )
    return True


def _base_offset(path: Path) -> int:
    """What the entries are relative to; a file that was renamed shows relative offsets."""
    return int(path.stem) if path.stem.isdigit() else 0


def _entries(path: Path, entry: Construct) -> tuple[Iterator[Any], bool]:
    data = path.read_bytes()
    count, odd = divmod(len(data), entry.sizeof())
    if odd:
        print(f"error: {path}: {odd} bytes at its end are not a whole entry", file=sys.stderr)
    stream = BytesIO(data)
    return (entry.parse_stream(stream) for _ in range(count)), not odd
