"""Tansu, a Kafka-compatible broker by others, with its in-memory engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.targets.tansu import Tansu


@contextmanager
def running_tansu(folder: Path) -> Iterator[str]:
    """Its address, until the end of the block."""
    with Tansu(folder / "data") as tansu:
        yield f"127.0.0.1:{tansu.port}"
