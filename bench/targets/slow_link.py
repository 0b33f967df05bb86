"""A link that delays each answer of a broker, as a process of its own.

`python -m bench.targets.slow_link PORT UPSTREAM_PORT DELAY_MS` runs it. The broker must advertise the link's
port, otherwise clients connect to the broker directly. The link only adds delay: requests still overlap.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from bench.targets.process import Target
from bench.wire import HOST
from faults.proxy import FaultProxy


class SlowLink(Target):
    """Delays a broker's answers. Its port is known before it starts, so that the broker can advertise it."""

    name = "slow link"
    reuses_address = True

    def __init__(self, folder: Path, delay_ms: float) -> None:
        super().__init__(folder)
        self.choose_port()
        self.upstream_port = 0
        self._delay_ms = delay_ms

    def command(self) -> list[str]:
        numbers = (self.port, self.upstream_port, self._delay_ms)
        return [sys.executable, "-m", "bench.targets.slow_link", *map(str, numbers)]


async def serve(port: int, upstream_port: int, delay_ms: float) -> None:
    """Forward until the process is ended."""
    proxy = FaultProxy(HOST, upstream_port, port=port)
    proxy.delay_ms = delay_ms
    async with proxy:
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
