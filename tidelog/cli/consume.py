"""`tidelog consume`: records of topics as lines, from now on or from a chosen place, until it is stopped.

Values are written as the bytes they are. Ctrl-C and a reader that closes the pipe are the usual ends and exit
with 0. Lines are flushed as often as records arrive. In a group, a record is committed after it was printed;
in a share group, it is accepted then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tidelog.cli import consume_options
from tidelog.cli.failures import Failure, run
from tidelog.cli.options import DEFAULT_CLUSTER, KeySeparator, Rate, ToCluster, refuse_two
from tidelog.cli.pace import Pace, Progress
from tidelog.cli.record_format import compile_format
from tidelog.protocol.json_lines import format_line

if TYPE_CHECKING:
    from tidelog.cli.registered_values import RegisteredValues
    from tidelog.client import Consumer, ConsumerRecord, ShareRecord, TopicPartition
    from tidelog.wire.cluster_config import ClusterConfig

_MOST_AT_ONCE = 5_000
_MOST_SHARED = 500
_LONGEST_WAIT_MS = 60_000
_END_IS_CHECKED_EVERY_MS = 100


class _Start(NamedTuple):
    """Where reading begins: with the next new record, if no field says otherwise."""

    from_beginning: bool
    tail: int | None
    offset: int | None
    timestamp_ms: int | None

    def options(self) -> dict[str, bool]:
        """Which of the options that say where to begin were given."""
        return {
            "--from-beginning": self.from_beginning,
            "--tail": self.tail is not None,
            "--offset": self.offset is not None,
            "--from-timestamp": self.timestamp_ms is not None,
        }


def consume(
    topics: consume_options.Topics,
    from_beginning: consume_options.FromBeginning = False,
    tail: consume_options.Tail = None,
    offset: consume_options.Offset = None,
    from_timestamp: consume_options.FromTimestamp = None,
    partitions: consume_options.Partitions = None,
    group: consume_options.Group = None,
    share: consume_options.Share = None,
    isolation: consume_options.Isolation = "read_uncommitted",
    max_messages: consume_options.MaxMessages = None,
    timeout_ms: consume_options.TimeoutMs = None,
    until_end: consume_options.UntilEnd = False,
    key_separator: KeySeparator = None,
    headers: consume_options.Headers = False,
    as_json: consume_options.AsJson = False,
    record_format: consume_options.Format = None,
    schema_registry: consume_options.SchemaRegistry = None,
    schema_registry_user: consume_options.SchemaRegistryUser = "",
    rate: Rate = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Print the records of topics, one per line. Ctrl-C ends it."""
    start = _Start(from_beginning, tail, offset, from_timestamp)
    refuse_two({"--timeout-ms": timeout_ms is not None, "--until-end": until_end})
    refuse_two(start.options())
    if group is not None:
        # A group decides itself where its members begin and what they read.
        chosen = {**start.options(), "--partition": bool(partitions), "--until-end": until_end}
        _refuse_beside("--group", {**chosen, "--from-beginning": False})
    if share is not None:
        # The group has these settings.
        chosen = {**start.options(), "--partition": bool(partitions), "--until-end": until_end}
        _refuse_beside("--share", {**chosen, "--group": group is not None})
    registered = None
    if schema_registry is not None:
        from tidelog.cli.registered_values import RegisteredValues

        registered = RegisteredValues(schema_registry, schema_registry_user)
    line = _line(key_separator, headers, as_json, record_format)
    printer = _Printer(line, max_messages, Pace(rate), registered)

    async def work() -> None:
        from tidelog.client import Consumer

        # Without a group `_begin` says where each partition begins: a reset only follows a deletion.
        reset = "earliest" if from_beginning or group is None else "latest"
        reader = Consumer(cluster=cluster, isolation_level=isolation, group_id=group, auto_offset_reset=reset)
        async with reader as consumer:
            there = await _partitions(topics, partitions, cluster)
            member = _Member(has_joined=group is None)
            ends = None
            if group is None:
                ends = await _begin(consumer, there, start)
            else:
                consumer.subscribe(topics, listener=member)
            await _print_records(consumer, member, printer, timeout_ms, ends if until_end else None)

    try:
        run(work() if share is None else _share(share, topics, printer, timeout_ms, cluster), cluster)
    except KeyboardInterrupt:
        raise typer.Exit from None
    finally:
        printer.progress.end()


def _line(
    key_separator: str | None, headers: bool, as_json: bool, record_format: str | None
) -> Callable[[ConsumerRecord], bytes]:
    """What makes the line of a record. Raises BadParameter for options that contradict each other."""
    parts = {"--headers": headers, "--key-separator": key_separator is not None}
    if as_json:
        _refuse_beside("--json", {**parts, "--format": record_format is not None})
        return format_line
    if record_format is not None:
        _refuse_beside("--format", parts)
        none = b""
    else:
        none = b"null"
        key = "" if key_separator is None else "%k" + key_separator.replace("%", "%%")
        record_format = (r"%h\t" if headers else "") + key + r"%s\n"
    try:
        return compile_format(record_format, none)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _refuse_beside(option: str, others: dict[str, bool]) -> None:
    for other, is_given in others.items():
        refuse_two({option: True, other: is_given})


class _Member:
    """A member of a group. The time that a group takes to let it join is no time without records."""

    def __init__(self, *, has_joined: bool) -> None:
        self.has_joined = has_joined

    def on_partitions_assigned(self, _: set[TopicPartition]) -> None:
        self.has_joined = True


class _Printer:
    """Writes records, `most` of them (None: all), at the pace wanted. `registered`: decodes them first."""

    def __init__(
        self, line: Callable[[Any], bytes], most: int | None, pace: Pace, registered: RegisteredValues | None
    ) -> None:
        # Records that scroll over the same terminal are progress enough.
        self.progress = Progress("read", most, wanted=not sys.stdout.isatty())
        self._line = line
        self._most = most
        self._pace = pace
        self._registered = registered
        self._done = 0

    def wants(self) -> int:
        """How many records to get at once; 0 at the end."""
        left = _MOST_AT_ONCE if self._most is None else self._most - self._done
        return min(left, _MOST_AT_ONCE if self._pace.is_unlimited else 1)

    async def print(self, records: Sequence[ConsumerRecord | ShareRecord]) -> None:
        if delay := self._pace.delay(self._done, time.monotonic()):
            from asyncio import sleep

            await sleep(delay)
        if self._registered is not None:
            records = await self._registered.decode(records)
        sys.stdout.buffer.write(b"".join(map(self._line, records)))
        sys.stdout.buffer.flush()
        self._done += len(records)
        self.progress.show(self._done)


async def _partitions(
    topics: list[str], chosen: list[int] | None, cluster: ClusterConfig
) -> list[TopicPartition]:
    """The chosen partitions of the topics, by default all. Raises Failure for one that does not exist."""
    from tidelog.client import Admin, TopicPartition

    found = []
    async with Admin(cluster=cluster) as admin:
        for topic in await admin.describe_topics(topics):
            there = {each.partition for each in topic.partitions}
            if missing := set(chosen or ()) - there:
                raise Failure(
                    f"topic {topic.name!r} has no partition {min(missing)}: it has 0 to {len(there) - 1}"
                )
            found += [TopicPartition(topic.name, index) for index in sorted(chosen or there)]
    return found


async def _begin(
    consumer: Consumer, partitions: list[TopicPartition], start: _Start
) -> dict[TopicPartition, int]:
    """Assign these partitions from where `start` says; where they end now."""
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    offsets = ends
    if start.from_beginning:
        offsets = await consumer.beginning_offsets(partitions)
    elif start.timestamp_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, start.timestamp_ms))
        offsets = {each: ends[each] if first is None else first.offset for each, first in found.items()}
    elif start.tail is not None:
        first = await consumer.beginning_offsets(partitions)
        offsets = {each: max(first[each], ends[each] - start.tail) for each in partitions}
    elif start.offset is not None:
        offsets = dict.fromkeys(partitions, start.offset)
        first = await consumer.beginning_offsets(partitions)
        for each in partitions:
            if not first[each] <= start.offset <= ends[each]:
                raise Failure(
                    f"partition {each.partition} of {each.topic!r} has the offsets {first[each]} to "
                    f"{ends[each]} (the next), not {start.offset}: choose one of them with --offset, or "
                    "other partitions with --partition"
                )
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
    return ends


async def _print_records(
    consumer: Consumer,
    member: _Member,
    printer: _Printer,
    timeout_ms: int | None,
    ends: dict[TopicPartition, int] | None,
) -> None:
    """Print until the printer wants no more, no record arrives in time, or all of `ends` are reached."""
    import asyncio

    wait_ms = timeout_ms or (_LONGEST_WAIT_MS if ends is None else _END_IS_CHECKED_EVERY_MS)
    while most := printer.wants():
        if ends is not None and await _has_reached(consumer, ends):
            return
        may_time_out = timeout_ms is not None and member.has_joined
        try:
            by_partition = await consumer.getmany(timeout_ms=wait_ms, max_records=most)
        except asyncio.CancelledError:
            # Ctrl-C is the usual end: all that was printed is finished, so a group commits it.
            return
        records = [
            record
            for partition, some in by_partition.items()
            for record in some
            if ends is None or record.offset < ends[partition]
        ]
        if records:
            await printer.print(records)
        elif may_time_out:
            return


async def _share(
    group: str, topics: list[str], printer: _Printer, timeout_ms: int | None, cluster: ClusterConfig
) -> None:
    """Print what the share group gives, until the printer wants no more or no record arrives in time."""
    import asyncio

    from tidelog.client import ShareConsumer

    reader = ShareConsumer(
        *topics,
        cluster=cluster,
        group_id=group,
        share_acknowledgement_mode="implicit",
        max_poll_records=min(_MOST_SHARED, printer.wants()),
    )
    async with reader as consumer:
        while most := printer.wants():
            may_time_out = timeout_ms is not None and bool(consumer.assignment())
            try:
                found = await consumer.getmany(timeout_ms=timeout_ms or _LONGEST_WAIT_MS, max_records=most)
            except asyncio.CancelledError:
                # Ctrl-C is the usual end: all that was printed is accepted.
                return
            if records := [record for some in found.values() for record in some]:
                await printer.print(records)
            elif may_time_out:
                return


async def _has_reached(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return all([await consumer.position(each) >= end for each, end in ends.items()])
