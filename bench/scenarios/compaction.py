"""How fast a compacted log is cleaned: of 20 records of each key one stays.

The broker's own cleaner over files that it wrote, in this process, so that nothing but the clean is measured.
Bytes are those of the log before the clean, seconds those of the processor.
"""

import time
from pathlib import Path
from threading import Event

from bench.comparison import Run
from bench.results import SUBJECT, Results
from tidelog.broker.storage.compaction.cleaner import LogClean, Pacing
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.producer_table import last_offsets_of, producer_ids_of
from tidelog.protocol.records import RecordBatchBuilder

SCENARIO = "clean a compacted log, 20 records per key"
_KEYS = 20_000
_RECORDS_A_BATCH = 500
_MAP_BYTES = 16 << 20
_VALUES = (("100-byte values", 100, 1), ("100 to 119-byte values", 100, 20))


def measure(run: Run) -> Results:
    """Each kind of records in each round. Raises OSError."""
    results = Results((), "The broker's cleaner of compacted logs")
    for number in range(run.rounds):
        for name, smallest, sizes in _VALUES:
            log = _filled(run.folder / f"compacted-{number}-{sizes}", smallest, sizes)
            size = log.size_bytes
            begin = time.process_time()
            _clean(log)
            results.row(SCENARIO, name, "MB/s").add(SUBJECT, size / 1e6 / (time.process_time() - begin))
            log.close(clean=False)
    return results


def _filled(folder: Path, smallest: int, sizes: int) -> PartitionLog:
    """A log whose producers and records are durable, all in closed segments."""
    now_ms = time.time_ns() // 1_000_000
    log = PartitionLog.open(
        folder,
        topic="compacted",
        partition=0,
        config=LogConfig(cleanup_policy=("compact",), segment_bytes=16 << 20),
        disk=Disk(),
        next_producer_id=lambda: 1,
        now_ms=now_ms,
        clean_shutdown=False,
        recovery_point=0,
    )
    for first in range(0, 20 * _KEYS, _RECORDS_A_BATCH):
        builder = RecordBatchBuilder()
        for number in range(first, first + _RECORDS_A_BATCH):
            builder.append(now_ms, b"key-%010d" % (number % _KEYS), bytes(smallest + number % sizes))
        log.append(builder.build(), 0, now_ms)
    log.roll(now_ms)
    if (flush := log.begin_flush()) is not None:
        flush.run()
        log.finish_flush(flush)
    if (checkpoint := log.begin_checkpoint()) is not None:
        checkpoint.run()
        log.finish_checkpoint(checkpoint)
    return log


def _clean(log: PartitionLog) -> None:
    now_ms = time.time_ns() // 1_000_000
    found = log.compaction.cleanable(log.config, log.flushed_end_offset, now_ms)
    task = log.compaction.begin(log.config, found, log.flushed_end_offset, now_ms, _MAP_BYTES)
    table = log.producers.view()
    pacing = Pacing(float("inf"), Event())
    clean = LogClean(task, pacing, last_offsets_of(table), producer_ids_of(table))
    clean.build_map()
    for group in clean.groups():
        new = clean.write(group)
        if new is not None and log.compaction.begin_swap(group):
            log.compaction.swap(group, new)
            log.compaction.finish_swap(group, new)
