"""`python -m bench.loads.request_load PORT …`: one-record requests as fast as the answers allow, over uvloop.

A process of its own, so that it has its own core. Each connection keeps a fixed number of requests in flight
(a closed loop); each has its own producer id, so that the broker does its full idempotence check. Prints one
JSON line: requests, seconds, p50_ms, p99_ms, requests_with_warm_up. Exit code 1 when an answer was wrong.
"""

import argparse
import asyncio
import gc
import json
import sys
import time

import uvloop

from bench.loads.frames import FrameMaker
from bench.loads.window import AnswerError, Window
from bench.statistics import percentile
from bench.wire import HOST, Wire

WARM_UP_S = 0.3
VALUE_BYTES = 100


class LoadConnection(asyncio.Protocol):
    """One connection that sends a request for each answer, until it is told to stop."""

    def __init__(self, frames: FrameMaker, window: Window, in_flight: int) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frames = frames
        self._window = window
        self._in_flight = in_flight
        self._stopping = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._send(self._in_flight)

    def _send(self, count: int) -> None:
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
        if not self._stopping:
            if answers:
                self._send(answers)
        elif not self._window.in_flight:
            self._end(None)

    def stop(self) -> None:
        """Send no more; `finished` is done once all is answered."""
        self._stopping = True

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or AnswerError("the server hung up"))

    def _end(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_result(None) if error is None else self.finished.set_exception(error)
            self._transport.close()


async def run(port: int, connections: int, in_flight: int, acks: int, seconds: float) -> dict[str, float]:
    """Load 127.0.0.1:`port` for `seconds` after a warm-up; the numbers as printed."""
    loop = asyncio.get_running_loop()
    with Wire(port) as wire:
        producers = [wire.new_producer_id() for _ in range(connections)]
    makers = [FrameMaker(*producer, acks, bytes(VALUE_BYTES)) for producer in producers]
    gc.disable()
    begin = time.perf_counter() + WARM_UP_S
    windows = [Window(begin) for _ in makers]
    clients: list[LoadConnection] = []
    for frames, window in zip(makers, windows, strict=True):
        client = LoadConnection(frames, window, in_flight)
        clients.append(client)
        await loop.create_connection(lambda client=client: client, HOST, port)  # type: ignore[misc]
    stop_at = loop.time() + WARM_UP_S + seconds
    for client in clients:
        loop.call_at(stop_at, client.stop)
    await asyncio.gather(*(client.finished for client in clients))
    measured = time.perf_counter() - begin
    latencies = sorted(latency for window in windows for latency in window.latencies)
    return {
        "requests": len(latencies),
        "requests_with_warm_up": sum(window.answers for window in windows),
        "seconds": measured,
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.request_load")
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--acks", type=int, default=-1, choices=(-1, 1))
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    try:
        result = uvloop.run(run(given.port, given.connections, given.in_flight, given.acks, given.seconds))
    except (AnswerError, OSError) as error:
        print(f"the load failed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
