"""`python -m bench.console_search`: how much a search of the console through 1 GB delays other clients.

Owns the comparison: the same requests, one after the other, while the broker has nothing else to do and while
the console searches. A request here is ListOffsets, which takes well below a millisecond, so its time is the
time for which the broker's loop was busy. Prints one row for each kind of search.
"""

import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from bench.targets.process import free_port
from bench.targets.tidelog import Tidelog
from bench.wire import HOST, TOPIC, Wire
from tidelog.cli.bench import percentile
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

_PRODUCE_VERSION = 7
_VALUE_BYTES = 1_000
_RECORDS = 1_000
"""Of a batch, which is about 1 MB then."""
_QUIET_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_SEARCHES = {
    "a text that is nowhere": {"text": "no such text"},
    "a key that is in each value": {"key": "value"},
}


class Broker(Tidelog):
    """Runs a broker whose HTTP port is known, so that its console can be asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.http_port = free_port()

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("--http-port") + 1] = str(self.http_port)
        return command


def _fill(port: int, topic: str, compression: Compression, size_bytes: int) -> None:
    """Batches of records that differ, `size_bytes` of values in all."""
    chance = random.Random(1)
    with Wire(port) as wire:
        wire.create_topic(topic)
        for first in range(0, size_bytes // _VALUE_BYTES, _RECORDS):
            builder = RecordBatchBuilder()
            for number in range(first, first + _RECORDS):
                value = b"value %d " % number + chance.randbytes(_VALUE_BYTES // 2).hex().encode()
                builder.append(0, b"key %d" % number, value)
            partition = {"index": 0, "records": bytes(builder.build(compression))}
            values = {
                "acks": 1,
                "timeout_ms": 30_000,
                "topic_data": [{"name": topic, "partition_data": [partition]}],
            }
            wire.ask(ApiKey.PRODUCE, _PRODUCE_VERSION, values)


@contextmanager
def asked(port: int) -> Iterator[list[float]]:
    """Seconds of each request that is sent while the block runs."""
    taken: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        with Wire(port) as wire:
            while not stop.wait(_PAUSE_SECONDS):
                begin = time.perf_counter()
                wire.end_offset()
                taken.append(time.perf_counter() - begin)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()
        taken.sort()


def _search(http_port: int, topic: str, query: dict[str, str]) -> int:
    """Search a topic to its end; how many bytes of the log that were."""
    connection = http.client.HTTPConnection(HOST, http_port)
    connection.request("GET", f"/api/v1/topics/{topic}/search?{urlencode(query)}")
    size_bytes = 0
    for line in connection.getresponse():
        if line.startswith(b"data: {") and (message := json.loads(line[6:])):
            size_bytes = message["size_bytes"]
    connection.close()
    return size_bytes


def show(name: str, taken: list[float], more: str = "") -> None:
    """Print the distribution of sorted seconds."""
    shares = ", ".join(
        f"p{share * 100:g} {percentile(taken, share) * 1000:.2f} ms" for share in (0.5, 0.99, 0.999)
    )
    print(f"{name}: {len(taken)} requests, {shares}, longest {taken[-1] * 1000:.1f} ms{more}", flush=True)


def main() -> int:
    size_bytes = int(float(sys.argv[1]) * 1e9) if len(sys.argv) > 1 else 10**9
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        with Wire(broker.port) as wire:
            wire.create_topic()
        for codec in (Compression.NONE, Compression.ZSTD):
            _fill(broker.port, codec.name.lower(), codec, size_bytes)
        _search(broker.http_port, TOPIC, {"text": "the first visitor, for whom the console is imported"})
        with asked(broker.port) as taken:
            time.sleep(_QUIET_SECONDS)
        show("without a search", taken)
        for topic in ("none", "zstd"):
            for name, query in _SEARCHES.items():
                begin, cpu = time.perf_counter(), broker.cpu_seconds()
                with asked(broker.port) as taken:
                    searched = _search(broker.http_port, topic, query)
                seconds = time.perf_counter() - begin
                show(
                    f"{name}, compression {topic}",
                    taken,
                    f"; {searched / 1e6:.0f} MB of log in {seconds:.1f} s,"
                    f" {broker.cpu_seconds() - cpu:.1f} s of processor",
                )
        with asked(broker.port) as taken:
            time.sleep(_QUIET_SECONDS)
        show("without a search, again", taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
