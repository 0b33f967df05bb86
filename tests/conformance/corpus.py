"""Records that a broker or client with a wrong idea of the format does not carry unharmed.

Owns their making; the same numbers make the same records, in every run.
"""

import random

from tests.conformance.peers import Message

PARTITIONS = 3
_START_MS = 1_700_000_000_000


def awkward_messages(partition: int) -> list[Message]:
    """Absent and empty keys, values and headers, every byte value, times that run backwards, large values."""
    noise = random.Random(partition)
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"without a key", ()),
        (b"tombstone", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        (bytes(range(256)), bytes(reversed(range(256))), ()),
        (b"headers", b"v", (("a", b"1"), ("b", b"2"), ("a", b"3"))),
        (b"headers", b"v", (("absent", None), ("empty", b""), ("ünïcode €", b"\x00\xff"))),
        (b"long header", None, (("h" * 300, noise.randbytes(3000)),)),
        (b"compressible", b"tidelog " * 20_000, ()),
        (b"incompressible", noise.randbytes(60_000), ()),
    ]
    return [
        Message(partition, _START_MS + 1000 * partition - 7 * index, key, value, headers)
        for index, (key, value, headers) in enumerate(shapes)
    ]


def small_messages(partition: int, count: int) -> list[Message]:
    """Many like those of every day, so that batches hold many and several requests are in flight."""
    noise = random.Random(1000 + partition)
    return [
        Message(
            partition,
            _START_MS + number,
            f"key-{number % 17}".encode(),
            f"{partition}-{number} ".encode() + noise.randbytes(noise.randrange(60)),
            (("number", str(number).encode()),) if number % 5 == 0 else (),
        )
        for number in range(count)
    ]


def corpus() -> list[Message]:
    """All of it for every partition, partitions taking turns."""
    by_partition = [awkward_messages(index) + small_messages(index, 150) for index in range(PARTITIONS)]
    return [message for turn in zip(*by_partition, strict=True) for message in turn]
