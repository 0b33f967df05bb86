"""`python -m bench.sink PORT FILE`: writes what it receives to a file and answers with canned bytes.

The upper bound for a broker in Python on this machine: no validation, no CRC, no offsets, no fsync. It knows
just enough of the protocol for confluent-kafka to drive it: where frames end, which API is asked, and one
prepared answer for each.

Invariants: every received byte is written once, in order; a request is answered when its last byte came, in
order. The file is emptied when the last client leaves, so that its dirty pages do not burden the next run.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from functools import cache
from struct import Struct

import uvloop

from bench.wire import HOST, TOPIC
from tidelog.broker.served_apis import advertised_api_keys
from tidelog.protocol.framing import encode_response_frame
from tidelog.protocol.hot import ProducePartitionResult, encode_produce_response
from tidelog.protocol.schema import ApiKey, encode_response

BUFFER_BYTES = 1 << 20
_HEAD = Struct(">ihhi")
_CORRELATION_AT = 4
_INT32 = Struct(">i")
_SERVED = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)


def canned_frame(api_key: int, version: int, port: int) -> bytes:
    """The whole response frame for one API and version, with correlation id 0."""
    if api_key == ApiKey.PRODUCE:
        body = encode_produce_response(version, [(TOPIC, [ProducePartitionResult(0, 0, 0, -1, 0)])])
    else:
        body = encode_response(api_key, version, _answers(port)[api_key])
    return b"".join(encode_response_frame(api_key, version, 0, body))


def _answers(port: int) -> dict[int, dict[str, object]]:
    partition = {
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": [1],
        "isr_nodes": [1],
    }
    return {
        ApiKey.API_VERSIONS: {"api_keys": advertised_api_keys(_SERVED)},
        ApiKey.INIT_PRODUCER_ID: {"producer_id": 1, "producer_epoch": 0},
        ApiKey.METADATA: {
            "brokers": [{"node_id": 1, "host": HOST, "port": port}],
            "cluster_id": "sink",
            "controller_id": 1,
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        },
    }


class FrameScanner:
    """Finds where requests end in a stream without keeping it: at most one frame's head is held."""

    def __init__(self) -> None:
        self._head = b""
        self._remaining = 0

    def feed(self, data: memoryview) -> list[tuple[int, int, int]]:
        """(API key, version, correlation id) of each request whose last byte is in `data`."""
        finished: list[tuple[int, int, int]] = []
        position, size = 0, len(data)
        while position < size:
            if len(self._head) < _HEAD.size:
                take = _HEAD.size - len(self._head)
                self._head += data[position : position + take]
                position += take
                if len(self._head) < _HEAD.size:
                    break
                self._remaining = _HEAD.unpack(self._head)[0] - (_HEAD.size - _INT32.size)
            take = min(self._remaining, size - position)
            position += take
            self._remaining -= take
            if self._remaining == 0:
                finished.append(_HEAD.unpack(self._head)[1:])
                self._head = b""
        return finished


class SinkConnection(asyncio.BufferedProtocol):
    """One client of the sink."""

    def __init__(
        self, file: int, answer: Callable[[int, int], bytes], clients: set["SinkConnection"]
    ) -> None:
        self._file = file
        self._answer = answer
        self._clients = clients
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._scanner = FrameScanner()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._clients.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        os.write(self._file, data)
        out: list[bytes | bytearray] = []
        for api_key, version, correlation_id in self._scanner.feed(data):
            frame = bytearray(self._answer(api_key, version))
            _INT32.pack_into(frame, _CORRELATION_AT, correlation_id)
            out.append(frame)
        if out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def connection_lost(self, error: Exception | None) -> None:
        self._clients.discard(self)
        if not self._clients:
            os.ftruncate(self._file, 0)


async def serve(port: int, path: str) -> None:
    """Listen on 127.0.0.1:`port` until the process is ended."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    clients: set[SinkConnection] = set()

    @cache
    def answer(api_key: int, version: int) -> bytes:
        return canned_frame(api_key, version, port)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SinkConnection(file, answer, clients), HOST, port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
