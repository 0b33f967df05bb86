"""`python -m bench.loads.fill_load PORT`: 1 KB records in full batches, until so many bytes are acknowledged.

A process of its own. One idempotent producer with a few requests in flight. Prints one JSON line: records,
bytes, seconds. Exit code 1 when an answer was wrong.
"""

import argparse
import json
import socket
import sys
import time

from bench.loads.frames import FrameMaker
from bench.loads.window import AnswerError, Window
from bench.wire import HOST, Wire, WireError

RECORDS_A_BATCH = 1000
VALUE_BYTES = 1000
_IN_FLIGHT = 5
_RECEIVE_BYTES = 1 << 16
_TIMEOUT_S = 60.0


def run(port: int, size: int) -> dict[str, float]:
    """Send batches of together at least `size` bytes. Raises AnswerError, OSError, WireError."""
    with Wire(port) as wire:
        producer = wire.new_producer_id()
    frames = FrameMaker(*producer, -1, bytes(VALUE_BYTES), RECORDS_A_BATCH)
    batches = -(-size // frames.batch_bytes)
    window = Window(0.0)
    begin = time.perf_counter()
    with socket.create_connection((HOST, port), timeout=_TIMEOUT_S) as connection:
        sent = 0
        while window.answers < batches:
            while sent < batches and window.in_flight < _IN_FLIGHT:
                window.sent(1, time.perf_counter())
                connection.sendall(frames.next_frame())
                sent += 1
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                raise AnswerError(f"the server hung up after {window.answers} of {batches} batches")
            window.received(data, time.perf_counter())
    taken = time.perf_counter() - begin
    return {"records": batches * RECORDS_A_BATCH, "bytes": batches * frames.batch_bytes, "seconds": taken}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.fill_load")
    parser.add_argument("port", type=int)
    parser.add_argument("--bytes", type=int, required=True)
    given = parser.parse_args()
    try:
        result = run(given.port, given.bytes)
    except (AnswerError, OSError, WireError) as error:
        print(f"the load failed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
