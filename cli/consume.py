"""`tidelog consume`: records of a topic as lines, from now on or from the beginning, until it is stopped.

Values are written as the bytes they are. Ctrl-C and a reader that closes the pipe are the usual ends and exit
with 0. Lines are flushed as often as records arrive.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.failures import Failure, run
from tidelog.cli.json_lines import format_line
from tidelog.cli.options import (
    DEFAULT_CLUSTER,
    KeySeparator,
    Rate,
    ToCluster,
    Topic,
    unescape,
)
from tidelog.cli.pace import Pace, Progress

if TYPE_CHECKING:
    from tidelog.client import Consumer, ConsumerRecord
    from tidelog.client.cluster_config import ClusterConfig

_MOST_AT_ONCE = 5_000
_NO_VALUE = b"null"
_BEGINNING = -2


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Begin with the oldest record. Without it, begin with the next new one."
        ),
    ] = False,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", min=0, help="Stop after this number of records.", show_default=False),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, help="Read only this partition. May be repeated.", show_default=False
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Begin at this offset.", show_default=False)
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout-ms", min=1, help="Stop when no record arrives in this time.", show_default=False
        ),
    ] = None,
    key_separator: KeySeparator = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print whole records as JSON, one object per line. Bytes that are not UTF-8 become "
            '{"base64": "…"}.',
        ),
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print NAME=VALUE,... and a tab before each record.")
    ] = False,
    rate: Rate = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Print the records of a topic, one per line. Ctrl-C ends it."""
    if from_beginning and offset is not None:
        raise typer.BadParameter("give --from-beginning or --offset, not both", param_hint="--offset")
    if as_json and (key_separator is not None or headers):
        raise typer.BadParameter(
            "leave out --headers and --key-separator: --json prints keys and headers", param_hint="--json"
        )
    line = format_line if as_json else _as_line(unescape(key_separator) if key_separator else None, headers)
    printer = _Printer(line, max_messages, Pace(rate))
    start = _BEGINNING if from_beginning else offset
    try:
        run(_print_records(topic, partitions, start, timeout_ms, printer, cluster), cluster)
    except KeyboardInterrupt:
        raise typer.Exit from None
    finally:
        printer.progress.end()


class _Printer:
    """Writes records, `most` of them (None: all), at the pace wanted."""

    def __init__(self, line: Callable[[ConsumerRecord], bytes], most: int | None, pace: Pace) -> None:
        # Records that scroll over the same terminal are progress enough.
        self.progress = Progress("read", most, wanted=not sys.stdout.isatty())
        self._line = line
        self._most = most
        self._pace = pace
        self._done = 0

    def wants(self) -> int:
        """How many records to get at once; 0 at the end."""
        left = _MOST_AT_ONCE if self._most is None else self._most - self._done
        return min(left, _MOST_AT_ONCE if self._pace.is_unlimited else 1)

    async def print(self, records: list[ConsumerRecord]) -> None:
        if delay := self._pace.delay(self._done, time.monotonic()):
            from asyncio import sleep

            await sleep(delay)
        sys.stdout.buffer.write(b"".join(map(self._line, records)))
        sys.stdout.buffer.flush()
        self._done += len(records)
        self.progress.show(self._done)


async def _print_records(
    topic: str,
    partitions: list[int] | None,
    start: int | None,
    timeout_ms: int | None,
    printer: _Printer,
    cluster: ClusterConfig,
) -> None:
    from tidelog.client import Consumer

    async with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        await _assign(consumer, topic, partitions, start, cluster)
        while most := printer.wants():
            records = await _some(consumer, most, timeout_ms)
            if not records:
                return
            await printer.print(records)


async def _assign(
    consumer: Consumer, topic: str, partitions: list[int] | None, start: int | None, cluster: ClusterConfig
) -> None:
    """Read these partitions of the topic, by default all, from `start` or from their ends as they are now."""
    from tidelog.client import Admin, TopicPartition

    async with Admin(cluster=cluster) as admin:
        (described,) = await admin.describe_topics([topic])
    there = {each.partition for each in described.partitions}
    missing = set(partitions or ()) - there
    if missing:
        raise Failure(f"topic {topic!r} has no partition {min(missing)}: it has 0 to {len(there) - 1}")
    wanted = [TopicPartition(topic, index) for index in sorted(partitions or there)]
    consumer.assign(wanted)
    if start == _BEGINNING:
        offsets = await consumer.beginning_offsets(wanted)
    elif start is None:
        offsets = await consumer.end_offsets(wanted)
    else:
        offsets = dict.fromkeys(wanted, start)
        first, following = await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)
        for partition in wanted:
            if not first[partition] <= start <= following[partition]:
                raise Failure(
                    f"partition {partition.partition} of {topic!r} has the offsets {first[partition]} to "
                    f"{following[partition]} (the next), not {start}: choose one of them with --offset, or "
                    "other partitions with --partition"
                )
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)


async def _some(consumer: Consumer, most: int, timeout_ms: int | None) -> list[ConsumerRecord]:
    """The next records as soon as there are any; none when `timeout_ms` passed."""
    while True:
        by_partition = await consumer.getmany(timeout_ms=timeout_ms or 60_000, max_records=most)
        records = [record for records in by_partition.values() for record in records]
        if records or timeout_ms is not None:
            return records


def _as_line(separator: bytes | None, with_headers: bool) -> Callable[[ConsumerRecord], bytes]:
    def line(record: Any) -> bytes:
        parts: list[bytes] = []
        if with_headers:
            parts += [b",".join(map(_header, record.headers)), b"\t"]
        if separator is not None:
            parts += [_NO_VALUE if record.key is None else record.key, separator]
        parts += [_NO_VALUE if record.value is None else record.value, b"\n"]
        return b"".join(parts)

    return line


def _header(header: tuple[str, bytes | None]) -> bytes:
    name, value = header
    return name.encode() + b"=" + (_NO_VALUE if value is None else value)
