"""`tidelog produce`: sends each line of standard input or of a file as a record, stored once.

A line ends at a line feed, which is not sent; a carriage return before it is data. Lines are sent as they
come, so they can be typed. The command ends when its input has ended and every record is stored.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.failures import Failure, run
from tidelog.cli.json_lines import Line, parse_line
from tidelog.cli.options import (
    DEFAULT_CLUSTER,
    Compression,
    KeySeparator,
    Rate,
    ToCluster,
    Topic,
    compression_type,
    unescape,
)
from tidelog.cli.pace import Pace, Progress

if TYPE_CHECKING:
    from tidelog.client import Producer

_READ_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 64 << 20
_MOST_UNANSWERED = 10_000
_LARGEST_REQUEST_BYTES = 32 << 20

Headers = tuple[tuple[str, bytes | None], ...]


def produce(
    topic: Topic,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Read the lines of this file, not of standard input.", show_default=False
        ),
    ] = None,
    key_separator: KeySeparator = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            min=0,
            help="Send to this partition. Without it, the key decides.",
            show_default=False,
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="Add this header to every record. May be repeated.",
            show_default=False,
        ),
    ] = None,
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
    """Send each line of the input as a record.

    Each record is stored once and in order, even if the network fails.
    """
    if as_json and key_separator is not None:
        raise typer.BadParameter(
            "leave it out: a line of --json contains its key", param_hint="--key-separator"
        )
    codec = compression_type(compression)
    given = tuple(_header(text) for text in headers or [])
    parse = _parser(unescape(key_separator) if key_separator else None, as_json, given, partition)
    descriptor = _open(file)
    if sys.stdin.isatty() and file is None:
        print("Type one record per line. Ctrl-D ends the input.", file=sys.stderr)
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
        count = run(_send(descriptor, topic, parse, Pace(rate), progress, options), cluster)
    finally:
        progress.end()
    noun = "record" if count == 1 else "records"
    print(f"stored {count:,} {noun} in {topic} ({time.monotonic() - began:.1f} s)", file=sys.stderr)


async def _send(
    descriptor: int,
    topic: str,
    parse: Callable[[bytes, int], Line],
    pace: Pace,
    progress: Progress,
    options: dict[str, Any],
) -> int:
    from tidelog.client import Producer

    async with Producer(**options) as producer:
        return await _send_lines(producer, _lines(descriptor), topic, parse, pace, progress)


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


def _parser(
    separator: bytes | None, as_json: bool, headers: Headers, partition: int | None
) -> Callable[[bytes, int], Line]:
    """What makes a record of a line and its number; `headers` and `partition` are the options'."""

    def parse(line: bytes, number: int) -> Line:
        if as_json:
            found = parse_line(line, number)
            chosen = found.partition if partition is None else partition
            return found._replace(headers=headers + found.headers, partition=chosen)
        key, value = (None, line) if separator is None else _split(line, separator, number)
        return Line(value, key, headers, partition)

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
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError as error:
        raise Failure(f"cannot read lines: {error.strerror}") from None


def _open(file: Path | None) -> int:
    if file is None:
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from None


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"expected NAME=VALUE, not {text!r}", param_hint="--header")
    return name, value.encode()
