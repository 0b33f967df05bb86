"""The batches of a `.log` file as lines.

Owns the form of the lines. A batch with a wrong CRC is shown and marked. The output ends where no batch
begins, because the position of the next one is not known.
"""

import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.broker.storage.integrity import is_reserved
from tidelog.cli.tables import format_timestamp
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BatchHeader,
    TimestampType,
    batch_crc_is_valid,
    decode_batch,
    read_batch_header,
    read_magic,
)


def dump(path: Path, *, with_records: bool) -> bool:
    """Print every batch; False when one is damaged. Raises OSError."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if not size:
            print("no batches")
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            return _dump(view, with_records)


def _dump(data: memoryview, with_records: bool) -> bool:
    position = batches = records = damaged = 0
    try:
        for position, header in _walk(data):
            intact = batch_crc_is_valid(data, header, position)
            print(_describe(position, header, intact))
            batches += 1
            records += header.record_count
            damaged += not intact
            if with_records and intact:
                _print_records(data, position)
            position += header.size_bytes
    except ProtocolError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        print(f"the batches before it are {batches}, with {records} records", file=sys.stderr)
        return False
    print(
        f"{batches} batches, {records} records, {position} bytes"
        + (f", {damaged} damaged" if damaged else "")
    )
    return not damaged


def _walk(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch with its position. Unlike `iter_batches` a tail cut short raises ProtocolError as well.

    What was reserved for later batches is no batch.
    """
    position, piece = 0, lambda at, size: data[at : at + size]
    while position < len(data) and not is_reserved(position, len(data), piece):
        header = read_batch_header(data, position)
        if (magic := read_magic(data, position)) != 2:
            raise ProtocolError(f"batch at byte {position}: expected magic 2, got {magic}")
        if position + header.size_bytes > len(data):
            raise ProtocolError(
                f"batch at byte {position}: {header.size_bytes} bytes were announced,"
                f" {len(data) - position} are left"
            )
        yield position, header
        position += header.size_bytes


def _describe(position: int, header: BatchHeader, intact: bool) -> str:
    fields: dict[str, object] = {
        "offsets": f"{header.base_offset}-{header.last_offset}",
        "records": header.record_count,
        "position": position,
        "bytes": header.size_bytes,
        "time": _times(header),
        "codec": _codec(header),
    }
    if header.producer_id >= 0:
        fields |= {
            "producer": header.producer_id,
            "epoch": header.producer_epoch,
            "sequences": f"{header.base_sequence}-{header.last_sequence}",
        }
    fields |= {"leader_epoch": header.partition_leader_epoch, "crc": f"{header.crc:08x}"}
    flags = [name for name in ("transactional", "control") if getattr(header, f"is_{name}")]
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        flags.append("log_append_time")
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    return " ".join((text, *flags, *(() if intact else ("DAMAGED: the CRC does not fit",))))


def _times(header: BatchHeader) -> str:
    first, last = format_timestamp(header.base_timestamp), format_timestamp(header.max_timestamp)
    return first if first == last else f"{first}..{last}"


def _codec(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except ProtocolError:
        return "unknown"


def _print_records(data: memoryview, position: int) -> None:
    for record in decode_batch(data, position, check_crc=False):
        print(
            f"  offset={record.offset} time={format_timestamp(record.timestamp)} key={_shown(record.key)}"
            f" value={_shown(record.value)}"
            + "".join(f" header={name}:{_shown(value)}" for name, value in record.headers)
        )


def _shown(data: Any) -> str:
    """Bytes as text on one line, quoted; null for none."""
    return "null" if data is None else repr(bytes(data).decode("utf-8", "backslashreplace"))
