"""Tansu, a Kafka-compatible broker by others, with its in-memory engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.targets.tansu import Tansu


class _Tansu(Tansu):
    creates_topics = False


@contextmanager
def running_tansu(folder: Path) -> Iterator[str]:
    """Its address, until the end of the block."""
    with _Tansu(folder / "data") as tansu:
        yield f"127.0.0.1:{tansu.port}"
