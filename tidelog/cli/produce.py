"""`tidelog produce`: sends each line of standard input or of a file as a record, or all of it as one.

A line ends at a line feed, which is not sent; a carriage return before it is data. Lines are sent as they
come, so they can be typed. The command ends when its input has ended and every record is stored, once. A
topic that does not exist is created only if that is asked for, because its name may be mistyped.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tidelog.cli.failures import Failure, reading, run
from tidelog.cli.options import (
    DEFAULT_CLUSTER,
    Compression,
    KeySeparator,
    Rate,
    ToCluster,
    Topic,
    assignment,
    compression_type,
    option,
    refuse_two,
    unescape,
)
from tidelog.cli.pace import Pace, Progress
from tidelog.cli.tables import counted
from tidelog.client import TopicAlreadyExistsError, UnknownTopicError
from tidelog.protocol.json_lines import Line, parse_line

if TYPE_CHECKING:
    from tidelog.client import Producer
    from tidelog.wire.cluster_config import ClusterConfig

_READ_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 64 << 20
_MOST_UNANSWERED = 10_000
_LARGEST_REQUEST_BYTES = 32 << 20

File: TypeAlias = Annotated[
    Path | None, option("--file", "-f", help="Read the lines of this file, not of standard input.")
]
Partition: TypeAlias = Annotated[
    int | None, option("--partition", min=0, help="Send to this partition. Without it, the key decides.")
]
Headers: TypeAlias = Annotated[
    list[str] | None,
    option("--header", metavar="NAME=VALUE", help="Add this header to every record. May be repeated."),
]


def produce(
    topic: Topic,
    file: File = None,
    create_topic: Annotated[
        bool, typer.Option("--create-topic", help="Create the topic if it does not exist.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="Send the whole input as one record.")] = False,
    key: Annotated[str | None, option("--key", metavar="TEXT", help="The key of every record.")] = None,
    key_separator: KeySeparator = None,
    partition: Partition = None,
    headers: Headers = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Each line is a JSON object with value, key, headers, partition, timestamp."
        ),
    ] = False,
    rate: Rate = None,
    compression: Compression = "none",
    linger_ms: Annotated[
        int, typer.Option("--linger-ms", min=0, help="Time that a batch waits for more records.")
    ] = 5,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Send each line of the input as a record, or the whole input as one record.

    Each record is stored once and in order, even if the network fails.
    """
    refuse_two({"--json": as_json, "--whole": whole})
    # A line of JSON contains its key.
    refuse_two({"--key": key is not None, "--json": as_json, "--key-separator": key_separator is not None})
    refuse_two({"--whole": whole, "--key-separator": key_separator is not None})
    codec = compression_type(compression)
    named = (assignment(text, "--header") for text in headers or ())
    given = tuple((name, value.encode()) for name, value in named)
    every = Line(b"", None if key is None else key.encode(), given, partition)
    parse = _parser(unescape(key_separator) if key_separator else None, as_json, every)
    descriptor = _open(file)
    if sys.stdin.isatty() and file is None:
        print(
            f"Type {'one record' if whole else 'one record per line'}. Ctrl-D ends the input.",
            file=sys.stderr,
        )
    options = {
        "cluster": cluster,
        # How large a record may be is the topic's decision (max.message.bytes).
        "max_request_size": _LARGEST_REQUEST_BYTES,
        "compression_type": codec,
        "linger_ms": linger_ms,
    }
    began = time.monotonic()
    # What a person types is on the screen already.
    progress = Progress("sent", wanted=file is not None or not sys.stdin.isatty())
    try:
        lines = _whole(descriptor) if whole else _lines(descriptor)
        work = _send(lines, topic, parse, Pace(rate), progress, options, create_topic=create_topic)
        count = run(work, cluster)
    finally:
        progress.end()
    print(f"stored {counted(count, 'record')} in {topic} ({time.monotonic() - began:.1f} s)", file=sys.stderr)


async def _send(
    lines: AsyncIterator[list[bytes]],
    topic: str,
    parse: Callable[[bytes, int], Line],
    pace: Pace,
    progress: Progress,
    options: dict[str, Any],
    *,
    create_topic: bool,
) -> int:
    from tidelog.client import Producer

    await _find_topic(topic, options["cluster"], create=create_topic)
    async with Producer(**options) as producer:
        return await _send_lines(producer, lines, topic, parse, pace, progress)


async def _find_topic(topic: str, cluster: ClusterConfig, *, create: bool) -> None:
    """Return when the topic exists. Raises Failure if it does not and must not be created."""
    from tidelog.client import Admin, NewTopic

    async with Admin(cluster=cluster) as admin:
        try:
            await admin.describe_topics([topic])
        except UnknownTopicError:
            if create:
                with suppress(TopicAlreadyExistsError):  # Another command created it meanwhile.
                    await admin.create_topics([NewTopic(topic)])
                    print(f"created {topic}", file=sys.stderr)
                return
            close = get_close_matches(topic, await admin.list_topics(), n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise Failure(
                f"there is no topic {topic}{meant}: check the name, or give --create-topic"
            ) from None


async def _send_lines(
    producer: Producer,
    lines: AsyncIterator[list[bytes]],
    topic: str,
    parse: Callable[[bytes, int], Line],
    pace: Pace,
    progress: Progress,
) -> int:
    """Send every line; how many were stored. The first that was not raises what its delivery raises."""
    import asyncio

    unanswered: deque[Awaitable[Any]] = deque()
    count = 0
    async for some in lines:
        for line in some:
            try:
                value, key, headers, partition, timestamp_ms = parse(line, count + 1)
                if delay := pace.delay(count, time.monotonic()):
                    await asyncio.sleep(delay)
                delivery = await producer.send(topic, value, key, partition, timestamp_ms, headers or None)
            except (Failure, ValueError) as error:
                await _stored(producer, unanswered)
                where = "" if isinstance(error, Failure) else f"line {count + 1}: "
                raise Failure(f"{where}{error} (records stored before it: {count})") from None
            unanswered.append(delivery)
            count += 1
            progress.show(count)
            if len(unanswered) > _MOST_UNANSWERED:
                await unanswered.popleft()
    await _stored(producer, unanswered)
    return count


async def _stored(producer: Producer, unanswered: Iterable[Awaitable[Any]]) -> None:
    """Return when all are. Raises what the first delivery that was not raises."""
    await producer.flush()
    for each in unanswered:
        await each


def _parser(separator: bytes | None, as_json: bool, every: Line) -> Callable[[bytes, int], Line]:
    """What makes a record of a line and its number; `every` has what the options give to all records."""

    def parse(line: bytes, number: int) -> Line:
        if as_json:
            try:
                found = parse_line(line, number)
            except ValueError as error:
                raise Failure(str(error)) from None
            chosen = found.partition if every.partition is None else every.partition
            return found._replace(headers=every.headers + found.headers, partition=chosen)
        if separator is None:
            return every._replace(value=line)
        key, value = _split(line, separator, number)
        return every._replace(key=key, value=value)

    return parse


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise Failure(f"line {number} does not contain the key separator {separator.decode()!r}")
    return key, value


async def _lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Whole lines as soon as they can be read; the last one need not end with a line feed."""
    rest = b""
    while data := await _read(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            raise Failure(f"a line is longer than {_LONGEST_LINE_BYTES} bytes. Is the input text?")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _whole(descriptor: int) -> AsyncIterator[list[bytes]]:
    """All that can be read, as one line."""
    parts, size = [], 0
    while data := await _read(descriptor):
        parts.append(data)
        size += len(data)
        if size > _LONGEST_LINE_BYTES:
            raise Failure(f"the input is longer than {_LONGEST_LINE_BYTES} bytes, the most of a record here")
    yield [b"".join(parts)]


async def _read(descriptor: int) -> bytes:
    """What can be read; nothing at the end. A wait in a thread could not be ended by Ctrl-C."""
    import asyncio

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except OSError:
        await asyncio.sleep(0)  # A file on disk can always be read; the sender gets its turn.
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
    with reading("lines"):
        return os.read(descriptor, _READ_BYTES)


def _open(file: Path | None) -> int:
    if file is None:
        return sys.stdin.fileno()
    with reading(file):
        return os.open(file, os.O_RDONLY)
