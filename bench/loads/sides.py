"""The two sides of the comparison with and without idempotence.

Owns how each way of sending is set up; a pair differs in idempotence and in nothing else: both wait for all
acks, with five requests in flight (our client: one). Prepared frames of both come from one buffer and go over
one connection, for where a process put its buffers makes more of a difference than idempotence does; clients
have a connection each. Invariant: `send` returns when all that it sent is acknowledged without an error, so a
side is idle while the other one's turn is measured.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.loads.frames import FrameMaker, Sender
from bench.loads.window import AnswerError, Window
from bench.wire import HOST, Wire
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

IN_FLIGHT = 5
IDEMPOTENT, PLAIN = "idempotent", "plain"
_RECEIVE_BYTES = 1 << 16
_TIMEOUT_S = 60.0
_RECORDS_A_CALL = 1000
_QUEUE_KILOBYTES = 65_536


@dataclass(frozen=True)
class Work:
    """What both sides send in a turn: `records` of `value_bytes`, evenly over the partitions.

    Raw frames go to one partition, `records_a_batch` in each; clients choose their batches themselves.
    """

    port: int
    topic: str
    partitions: int
    records: int
    value_bytes: int
    records_a_batch: int


@dataclass(frozen=True)
class Side:
    """One way to send. `send` does one turn, `close` ends it."""

    send: Callable[[], None]
    close: Callable[[], None]
    most_in_flight: Callable[[], int] = lambda: IN_FLIGHT
    """The most requests that were seen in flight at once."""


def open_raw(work: Work) -> dict[str, Side]:
    """Prepared frames over a socket, and of a client what counts answers. Raises OSError, WireError."""
    with Wire(work.port) as wire:
        producer = wire.new_producer_id()
    senders = {IDEMPOTENT: Sender(*producer), PLAIN: Sender(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)}
    frames = FrameMaker(*producer, -1, bytes(work.value_bytes), work.records_a_batch)
    connection = socket.create_connection((HOST, work.port), timeout=_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    window = Window(float("inf"))

    def send(sender: Sender) -> None:
        frames.sender = sender
        unsent = work.records // work.records_a_batch
        while unsent or window.in_flight:
            while unsent and window.in_flight < IN_FLIGHT:
                window.sent(1, 0.0)
                connection.sendall(frames.next_frame())
                unsent -= 1
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                raise AnswerError("the server hung up")
            window.received(data, 0.0)

    return {name: Side(partial(send, sender), connection.close) for name, sender in senders.items()}


def open_clients(work: Work) -> dict[str, Side]:
    """Our own client. Raises what it raises."""
    return {name: _open_client(work, idempotent=name == IDEMPOTENT) for name in (IDEMPOTENT, PLAIN)}


def open_confluents(work: Work) -> dict[str, Side]:
    """confluent-kafka, a thousand records a call, partition by partition. Raises AnswerError."""
    return {name: _open_confluent(work, idempotent=name == IDEMPOTENT) for name in (IDEMPOTENT, PLAIN)}


def _open_client(work: Work, *, idempotent: bool) -> Side:
    from tidelog.client import Producer

    loop = asyncio.get_event_loop()
    value = os.urandom(work.value_bytes)
    producer = Producer(
        bootstrap_servers=f"{HOST}:{work.port}",
        enable_idempotence=idempotent,
        # As many as it has without idempotence whatever is set.
        max_in_flight_requests_per_connection=1,
    )

    async def turn() -> None:
        for _ in range(work.records):
            _ = await producer.send(work.topic, value)
        await producer.flush()

    loop.run_until_complete(producer.start())
    return Side(
        lambda: loop.run_until_complete(turn()),
        lambda: loop.run_until_complete(producer.stop()),
        lambda: 1,
    )


def _open_confluent(work: Work, *, idempotent: bool) -> Side:
    from confluent_kafka import Producer

    errors: list[str] = []
    in_flight = [0]

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(str(error))

    def measured(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        in_flight[0] = max(in_flight[0], *(broker["waitresp_cnt"] for broker in brokers))

    producer: Any = Producer(
        {
            "bootstrap.servers": f"{HOST}:{work.port}",
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "acks": "all",
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
            "delivery.report.only.error": True,
            "statistics.interval.ms": 10,
            "stats_cb": measured,
            "log_level": 0,
        }
    )
    messages = [{"value": os.urandom(work.value_bytes)} for _ in range(_RECORDS_A_CALL)]

    def send() -> None:
        for call in range(work.records // _RECORDS_A_CALL):
            partition = call % work.partitions
            queued = producer.produce_batch(work.topic, messages, partition, on_delivery=delivered)
            if queued < _RECORDS_A_CALL:
                raise AnswerError(f"the queue took {queued} of {_RECORDS_A_CALL} records")
        left = producer.flush(_TIMEOUT_S)
        if errors or left:
            raise AnswerError(f"{left} records were not acknowledged in time; errors: {errors[:1]}")

    return Side(send, lambda: producer.flush(_TIMEOUT_S), lambda: in_flight[0])
