"""Prepared Produce requests as fast as the answers allow, over uvloop: a client that costs almost nothing.

Each connection keeps a fixed number of requests in flight (a closed loop). It has its own producer id, so
that the broker does its full idempotence check, and its own share of the topic's partitions: every request
has a batch for each of these.
"""

import asyncio
import gc
import time

from bench.loads.frames import FrameMaker
from bench.loads.window import AnswerError, Window
from bench.wire import HOST, Wire
from tidelog.cli.bench import percentile

WARM_UP_S = 0.3


class LoadConnection(asyncio.Protocol):
    """One connection that sends a request for each answer, until it is stopped or has sent `requests`."""

    def __init__(self, frames: FrameMaker, window: Window, in_flight: int, requests: float) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frames = frames
        self._window = window
        self._in_flight = in_flight
        self._left = requests
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._send(self._in_flight)

    def _send(self, count: int) -> None:
        if count > self._left:
            count = int(self._left)
        self._left -= count
        make = self._frames.next_frame
        data = make() if count == 1 else b"".join([make() for _ in range(count)])
        self._window.sent(count, time.perf_counter())
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._window.received(data, time.perf_counter())
        except AnswerError as error:
            self._end(error)
            return
        if self._left:
            if answers:
                self._send(answers)
        elif not self._window.in_flight:
            self._end(None)

    def stop(self) -> None:
        """Send no more; `finished` is done once all is answered."""
        self._left = 0

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or AnswerError("the server hung up"))

    def _end(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_result(None) if error is None else self.finished.set_exception(error)
            self._transport.close()


async def run(
    port: int,
    topic: str,
    connections: int = 1,
    in_flight: int = 5,
    partitions: int = 1,
    records_per_batch: int = 1,
    value_bytes: int = 100,
    uneven_bytes: int = 0,
    seconds: float | None = None,
    requests: int | None = None,
) -> dict[str, float]:
    """Send for `seconds` after a warm-up, or so many `requests` on each connection.

    `records` and latencies are those of requests after the warm-up; `acknowledged` records are all, and
    `cpu_seconds` is what this program used for them.
    """
    loop = asyncio.get_running_loop()
    with Wire(port) as wire:
        producers = [wire.new_producer_id() for _ in range(connections)]
    # On one partition all write to it.
    shares = [range(number % partitions, partitions, connections) for number in range(connections)]
    makers = [
        FrameMaker(*producer, topic, share, bytes(value_bytes), records_per_batch, uneven_bytes)
        for producer, share in zip(producers, shares, strict=True)
    ]
    gc.disable()
    cpu_before = time.process_time()
    begin = time.perf_counter() + (WARM_UP_S if seconds else 0)
    windows = [Window(topic, len(share), begin) for share in shares]
    clients: list[LoadConnection] = []
    for frames, window in zip(makers, windows, strict=True):
        client = LoadConnection(frames, window, in_flight, requests or float("inf"))
        clients.append(client)
        await loop.create_connection(lambda client=client: client, HOST, port)  # type: ignore[misc]
    if seconds:
        for client in clients:
            loop.call_at(loop.time() + WARM_UP_S + seconds, client.stop)
    await asyncio.gather(*(client.finished for client in clients))
    measured, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_before
    latencies = sorted(latency for window in windows for latency in window.latencies)
    sizes = [records_per_batch * len(share) for share in shares]
    counted = [size * len(window.latencies) for size, window in zip(sizes, windows, strict=True)]
    return {
        "records": sum(counted),
        "acknowledged": sum(size * window.answers for size, window in zip(sizes, windows, strict=True)),
        "seconds": measured,
        "cpu_seconds": cpu_seconds,
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
    }
