"""Fetch requests of a partition from its beginning to its end over sockets, again and again.

The client does almost nothing: of an answer it reads the header of the first batch and the size. All batches
have one size, as a raw load writes them, and that gives the next offset. Each connection has one request in
flight, so two keep a server busy.
"""

import gc
import selectors
import socket
import time
from struct import Struct

from bench.wire import HOST, Wire, WireError
from tidelog.cli.bench import percentile
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.records import BATCH_HEADER_SIZE, read_batch_header
from tidelog.protocol.schema import ApiKey, encode_request

_VERSION = 4
_LARGEST_BYTES = 1 << 20
_WAIT_MS = 500
_SIZE = Struct(">i")


class _Reader:
    """One connection that reads the topic from its beginning to its end, and again."""

    def __init__(self, port: int, topic: str, end_offset: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.records = 0
        self.latencies: list[float] = []
        self._topic = topic
        self._end_offset = end_offset
        self._offset = 0
        # Size, correlation id, throttle time, topics, name, partitions; index, error, high watermark, last
        # stable offset, aborted transactions, size of the records.
        self._head = Struct(f">iiii{2 + len(topic)}xiihqqii")
        self._buffer = memoryview(bytearray(_LARGEST_BYTES + (1 << 16)))
        self._sent_at = 0.0

    def ask(self) -> None:
        """Send the next request."""
        partition = {"partition": 0, "fetch_offset": self._offset, "partition_max_bytes": _LARGEST_BYTES}
        values = {
            "replica_id": -1,
            "max_wait_ms": _WAIT_MS,
            "min_bytes": 1,
            "max_bytes": _LARGEST_BYTES,
            "isolation_level": 0,
            "topics": [{"topic": self._topic, "partitions": [partition]}],
        }
        body = encode_request(ApiKey.FETCH, _VERSION, values)
        self._sent_at = time.perf_counter()
        self.socket.sendall(b"".join(encode_request_frame(ApiKey.FETCH, _VERSION, 0, "bench", body)))

    def receive(self) -> None:
        """Read the whole answer, which has begun to come. Raises WireError, OSError."""
        self._take(self._head.size + BATCH_HEADER_SIZE)
        size, *_, error, _, _, aborted, records_bytes = self._head.unpack_from(self._buffer)
        if error or aborted > 0:
            raise WireError(f"FETCH {self._topic} at {self._offset}: error {error}")
        header = read_batch_header(self._buffer, self._head.size)
        # Nobody looks at the rest, so it is not copied: see tcp(7).
        self._take(_SIZE.size + size - self._head.size - BATCH_HEADER_SIZE, socket.MSG_TRUNC)
        if header.base_offset != self._offset:
            raise WireError(f"expected offset {self._offset}, got {header.base_offset}")
        self.latencies.append(time.perf_counter() - self._sent_at)
        count = records_bytes // header.size_bytes * header.record_count
        self.records += count
        self._offset += count
        if self._offset >= self._end_offset:
            self._offset = 0

    def _take(self, size: int, flags: int = 0) -> None:
        taken = 0
        while taken < size:
            count = self.socket.recv_into(self._buffer[taken:size], 0, flags | socket.MSG_WAITALL)
            if not count:
                raise WireError("the server hung up")
            taken += count


def run(port: int, topic: str, seconds: float, connections: int = 2) -> dict[str, float]:
    """Read for `seconds`. Raises WireError, OSError."""
    with Wire(port) as wire:
        end_offset = wire.end_offset(topic)
    readers = [_Reader(port, topic, end_offset) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    for reader in readers:
        selector.register(reader.socket, selectors.EVENT_READ, reader)
    gc.disable()
    begin = time.perf_counter()
    waiting = len(readers)
    for reader in readers:
        reader.ask()
    while waiting:
        for key, _ in selector.select():
            key.data.receive()
            if time.perf_counter() < begin + seconds:
                key.data.ask()
            else:
                waiting -= 1
    taken = time.perf_counter() - begin
    latencies = sorted(latency for reader in readers for latency in reader.latencies)
    for reader in readers:
        reader.socket.close()
    return {
        "records": sum(reader.records for reader in readers),
        "seconds": taken,
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
    }
