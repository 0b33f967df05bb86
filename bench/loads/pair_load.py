"""The same prepared requests with idempotence and without, turn by turn, over one connection.

Turns are short and alternate, and who goes first alternates too, so that what else the machine does meets
both alike. Both sides' frames come from one buffer, for where a process put its buffers makes more of a
difference than idempotence does. A turn ends when all that it sent is acknowledged without an error.
"""

import gc
import socket
import time
from pathlib import Path

from bench.loads.frames import FrameMaker, Sender
from bench.loads.window import AnswerError, Window
from bench.wire import HOST, TOPIC, Wire
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

IDEMPOTENT, PLAIN = "idempotent", "plain"
_IN_FLIGHT = 5
_RECEIVE_BYTES = 1 << 16
_TIMEOUT_S = 60.0


def run(
    port: int, pid: int, requests: int, records_a_batch: int, value_bytes: int, turns: int
) -> dict[str, list[float]]:
    """Of each side the seconds of each turn, and (`_cpu`) the processor time of process `pid`, the server."""
    with Wire(port) as wire:
        wire.create_topic()
        producer = wire.new_producer_id()
    senders = {IDEMPOTENT: Sender(*producer), PLAIN: Sender(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)}
    frames = FrameMaker(*producer, TOPIC, (0,), bytes(value_bytes), records_a_batch)
    window = Window(TOPIC, 1, float("inf"))
    numbers: dict[str, list[float]] = {f"{name}{kind}": [] for name in senders for kind in ("", "_cpu")}
    with socket.create_connection((HOST, port), timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for sender in senders.values():  # A turn that does not count.
            frames.sender = sender
            _turn(connection, frames, window, requests)
        gc.collect()
        gc.disable()
        for number in range(turns):
            for name in senders if number % 2 else reversed(senders):
                frames.sender = senders[name]
                cpu_before, begin = _cpu_seconds(pid), time.perf_counter()
                _turn(connection, frames, window, requests)
                numbers[name].append(time.perf_counter() - begin)
                numbers[f"{name}_cpu"].append(_cpu_seconds(pid) - cpu_before)
    return numbers


def _turn(connection: socket.socket, frames: FrameMaker, window: Window, unsent: int) -> None:
    while unsent or window.in_flight:
        while unsent and window.in_flight < _IN_FLIGHT:
            window.sent(1, 0.0)
            connection.sendall(frames.next_frame())
            unsent -= 1
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            raise AnswerError("the server hung up")
        window.received(data, 0.0)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process's threads, user and system, to the nanosecond."""
    return (
        sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    )
