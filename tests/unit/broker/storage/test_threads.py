"""Reads in threads while the loop appends, rolls and deletes."""

import threading
from functools import partial
from pathlib import Path

from tests.unit.broker.storage.support import NOW_MS, append, batch, checkpoint, flush, open_log
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.errors import ApiError
from tidelog.protocol.records import batch_crc_is_valid, iter_batches

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300, retention_bytes=8000)


class Reader(threading.Thread):
    """Follows the log as a consumer does; an offset that retention took makes it go to the new start."""

    def __init__(self, log: PartitionLog, moved: threading.Condition, done: threading.Event) -> None:
        super().__init__()
        self.moved = moved
        self.log = log
        self.done = done
        self.batches = 0
        self.problem: str | None = None

    def run(self) -> None:
        try:
            self.follow()
        except Exception as error:
            self.problem = repr(error)

    def can_go_on(self, offset: int) -> bool:
        return offset < self.log.flushed_end_offset or self.done.is_set()

    def follow(self) -> None:
        offset = 0
        while True:
            with self.moved:
                self.moved.wait_for(partial(self.can_go_on, offset))
            upper = self.log.flushed_end_offset
            if offset >= upper:
                return
            try:
                result = self.log.read(Read(offset, 700, upper))
            except ApiError as error:
                if offset >= self.log.start_offset:
                    self.problem = f"{error} at {offset}"
                    return
                offset = self.log.start_offset
                continue
            for records in result.records:
                for position, found in iter_batches(records):
                    self.batches += 1
                    is_in_order = offset == found.base_offset and found.last_offset < upper
                    if not is_in_order or not batch_crc_is_valid(records, found, position):
                        self.problem = f"{found} read from {offset} below {upper}"
                        return
                    offset = found.last_offset + 1
            if offset != result.next_offset and result.records:
                self.problem = f"next offset {result.next_offset} after {offset}"
                return


def test_readers_in_threads_meet_only_whole_batches_in_order(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    done = threading.Event()
    moved = threading.Condition()
    readers = [Reader(log, moved, done) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1500):
        append(log, batch(1, 0, number * 2, 2))
        if number % 10 == 9:
            flush(log)
            with moved:
                moved.notify_all()
        if number % 100 == 99:
            checkpoint(log)
            log.apply_retention(NOW_MS)
            for path in log.take_deleted_files():
                path.unlink()
    flush(log)
    done.set()
    with moved:
        moved.notify_all()
    for reader in readers:
        reader.join(DEADLINE_SECONDS)
    assert [reader.problem for reader in readers] == [None] * 3
    assert all(reader.batches for reader in readers)
    log.close(clean=False)
