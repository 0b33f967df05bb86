"""Prepared Produce requests of large batches over one blocking socket: the client does almost nothing.

It keeps a fixed number of requests in flight and sends each from the memory in which it was prepared. Only
sequence, CRC and correlation id change.
"""

import gc
import socket
import time

from bench.loads.frames import FrameMaker
from bench.loads.window import Window
from bench.wire import HOST, Wire
from tidelog.cli.bench import percentile

_RECEIVED_BYTES = 1 << 16


def run(
    port: int,
    topic: str,
    records_per_batch: int,
    value_bytes: int,
    seconds: float,
    in_flight: int = 5,
) -> dict[str, float]:
    """Send for `seconds`, to partition 0. Raises AnswerError, OSError."""
    with Wire(port) as wire:
        producer = wire.new_producer_id()
    maker = FrameMaker(*producer, topic, (0,), bytes(value_bytes), records_per_batch)
    begin = time.perf_counter()
    window = Window(topic, 1, begin)
    with socket.create_connection((HOST, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gc.disable()
        while window.in_flight or time.perf_counter() < begin + seconds:
            while window.in_flight < in_flight and time.perf_counter() < begin + seconds:
                window.sent(1, time.perf_counter())
                connection.sendall(maker.patched())
            data = connection.recv(_RECEIVED_BYTES)
            if not data:
                raise ConnectionError("the server hung up")
            window.received(data, time.perf_counter())
    taken = time.perf_counter() - begin
    latencies = sorted(window.latencies)
    records = window.answers * records_per_batch
    return {
        "records": records,
        "acknowledged": records,
        "seconds": taken,
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
    }
