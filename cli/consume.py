"""`tidelog consume`: records of a topic as lines, from now on or from the beginning, until told to stop.

Values are written as the bytes they are. Ctrl-C and a reader that closes the pipe are the usual ends and exit
with 0. Lines are flushed as often as records arrive.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failures import Failure, run
from cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, KeySeparator, Topic, unescape

if TYPE_CHECKING:
    from client import Consumer, ConsumerRecord

_MOST_AT_ONCE = 5_000
_NO_VALUE = b"null"
_BEGINNING = -2


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record, not with the next one.")
    ] = False,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=0, help="Stop after so many.", show_default=False)
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Read this partition; may be repeated.", show_default=False),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Start at this offset.", show_default=False)
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=1, help="Stop when nothing came for so long.", show_default=False),
    ] = None,
    key_separator: KeySeparator = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Whole records, one JSON object a line; bytes read as UTF-8.")
    ] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Print the records of a topic, one a line. Ctrl-C ends it."""
    if from_beginning and offset is not None:
        raise typer.BadParameter("give --from-beginning or --offset, not both", param_hint="--offset")
    if as_json and key_separator is not None:
        raise typer.BadParameter("--json prints keys by itself", param_hint="--key-separator")
    line = _as_json if as_json else _as_line(unescape(key_separator) if key_separator else None)
    start = _BEGINNING if from_beginning else offset
    try:
        run(
            _print_records(topic, partitions, start, max_messages, timeout_ms, line, bootstrap_servers),
            bootstrap_servers,
        )
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _print_records(
    topic: str,
    partitions: list[int] | None,
    start: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    line: Callable[[ConsumerRecord], bytes],
    bootstrap_servers: str,
) -> None:
    from client import Consumer

    async with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await _assign(consumer, topic, partitions, start, bootstrap_servers)
        left = max_messages
        while left is None or left > 0:
            records = await _some(consumer, min(left or _MOST_AT_ONCE, _MOST_AT_ONCE), timeout_ms)
            if not records:
                return
            if left is not None:
                left -= len(records)
            _write(b"".join(map(line, records)))


async def _assign(
    consumer: Consumer, topic: str, partitions: list[int] | None, start: int | None, bootstrap_servers: str
) -> None:
    """Read these partitions of the topic, by default all, from `start` or from their ends as they are now."""
    from client import Admin, TopicPartition

    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        (described,) = await admin.describe_topics([topic])
    there = {each.partition for each in described.partitions}
    missing = set(partitions or ()) - there
    if missing:
        raise Failure(f"topic {topic!r} has partitions 0 to {len(there) - 1}, not {min(missing)}")
    wanted = [TopicPartition(topic, index) for index in sorted(partitions or there)]
    consumer.assign(wanted)
    if start == _BEGINNING:
        offsets = await consumer.beginning_offsets(wanted)
    elif start is None:
        offsets = await consumer.end_offsets(wanted)
    else:
        offsets = dict.fromkeys(wanted, start)
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)


async def _some(consumer: Consumer, most: int, timeout_ms: int | None) -> list[ConsumerRecord]:
    """The next records as soon as there are any; none when `timeout_ms` passed."""
    while True:
        by_partition = await consumer.getmany(timeout_ms=timeout_ms or 60_000, max_records=most)
        records = [record for records in by_partition.values() for record in records]
        if records or timeout_ms is not None:
            return records


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _as_line(separator: bytes | None) -> Callable[[ConsumerRecord], bytes]:
    def line(record: Any) -> bytes:
        value: bytes = _NO_VALUE if record.value is None else record.value
        if separator is None:
            return value + b"\n"
        key: bytes = _NO_VALUE if record.key is None else record.key
        return key + separator + value + b"\n"

    return line


def _as_json(record: ConsumerRecord) -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(data: Any) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
