"""How long the broker's event loop is held with a million producers, in one process with it.

A partition gets a million producers (as replayed headers, for sending so many batches would take minutes);
then each piece of upkeep runs while a probe comes round on the loop all the time. Measured is the longest
time between two rounds of the probe, in milliseconds, by the wall clock and (`_cpu`) by the CPU time of the
loop's thread, which neither other programs nor other threads lengthen.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.loads.producers_load import POPULATIONS, StateError, header
from bench.wire import TOPIC
from tidelog.broker.clock import SteadyClock, clock_ms
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.log_events import configure
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.services import Services, open_services
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.snapshot import snapshot_offsets
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.types import NO_OFFSET

_NEVER_MS = 2**40


class Probe:
    """Comes round on the loop until it is stopped; keeps the longest pause."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = (time.perf_counter(), time.thread_time())
        self._running = True
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0
        self._round()

    def _round(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last[0])
        self.longest_cpu_s = max(self.longest_cpu_s, cpu - self._last[1])
        self._last = (now, cpu)
        if self._running:
            self._loop.call_later(0.0005, self._round)

    def stop(self) -> None:
        """With a last look, for the loop may be held at this very moment."""
        self._running = False
        self._round()


def fill(services: Services, producers: int) -> None:
    """As many producers on partition 0, one batch each: what they take does not depend on how many."""
    states, now_ms = services.replicas[TOPIC, 0].log.producers, clock_ms()
    for producer_id in range(producers):
        batch = header(producer_id, 0)
        # No producer may be ahead of the log, which is empty.
        states.apply(batch, NO_OFFSET - batch.last_offset_delta, now_ms)
    states.view()


async def pieces(services: Services) -> dict[str, Callable[[], Awaitable[None]]]:
    """What upkeep does to the one partition there is."""
    log = services.replicas[TOPIC, 0].log
    builder = RecordBatchBuilder()
    builder.append(clock_ms(), None, b"value")

    async def roll_and_snapshot() -> None:
        log.append(builder.build(), leader_epoch=0, now_ms=clock_ms())
        log.roll(clock_ms())
        await services.maintenance.checkpoint()
        if not snapshot_offsets(Disk(), log.folder):
            raise StateError("a segment was closed, and no snapshot was written")

    async def expire_all() -> None:
        log.producers.rules = log.producers.rules._replace(expiration_ms=0)
        await services.maintenance.expire_producers()

    return {
        "roll_and_snapshot": roll_and_snapshot,
        "retention": services.maintenance.apply_retention,
        "expiry": expire_all,
    }


async def run(folder: str, producers: int = POPULATIONS[-1]) -> dict[str, float]:
    """All numbers. Raises StateError when a piece did not do what it is there for."""
    configure(sys.stderr)
    config = BrokerConfig(data_dir=Path(folder) / "lag", log_flush_offset_checkpoint_interval_ms=_NEVER_MS)
    services = await open_services(config, Metrics(), clock_ms, steady_ms=SteadyClock().now_ms)
    numbers: dict[str, float] = {}
    try:
        await services.topics.create(TOPIC)
        fill(services, producers)
        for name, piece in (await pieces(services)).items():
            probe = Probe()
            await piece()
            probe.stop()
            numbers[f"{name}_ms"] = probe.longest_s * 1000
            numbers[f"{name}_cpu_ms"] = probe.longest_cpu_s * 1000
        left = len(services.replicas[TOPIC, 0].log.producers)
        if left:
            raise StateError(f"all of {producers} producers were to expire, {left} are left")
    finally:
        await services.close(clean=False)
    return numbers
