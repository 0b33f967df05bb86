"""One writer whose leader is killed: how long nothing is acknowledged.

This client sends one record after the other, all to partition 0, each after the answer to the one before.
"""

import asyncio
import os
import signal
import time

from bench.wire import HOST
from tidelog.client import Producer

_BEFORE_S = 1.0
_AFTER_S = 1.0
_LIMIT_S = 90.0


async def run(port: int, topic: str, pid: int) -> dict[str, float]:
    """Kill process `pid` with SIGKILL after a second. `gap_s` is the longest time between two answers."""
    async with Producer(
        bootstrap_servers=f"{HOST}:{port}", linger_ms=0, delivery_timeout_ms=int(_LIMIT_S * 1000)
    ) as producer:
        await producer.send_and_wait(topic, b"0", partition=0)
        begin = last = time.perf_counter()
        killed_at = None
        records, gap = 1, 0.0
        while killed_at is None or last < killed_at + _AFTER_S:
            if killed_at is None and last > begin + _BEFORE_S:
                os.kill(pid, signal.SIGKILL)
                killed_at = time.perf_counter()
            await asyncio.wait_for(producer.send_and_wait(topic, b"%d" % records, partition=0), _LIMIT_S)
            now = time.perf_counter()
            if killed_at is not None:
                gap = max(gap, now - last)
            last = now
            records += 1
    return {"records": records, "gap_s": gap}
