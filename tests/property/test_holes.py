"""Whatever closed segments lose: no offset is passed in silence, no batch acknowledged that is not there."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.storage.support import NOW_MS, append, batch, checkpoint, flush, open_log, outcome
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.holes import Hole
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import AppendResult, PartitionLog, Read, ReadResult
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import iter_batches
from tidelog.protocol.types import NO_OFFSET

_REFUSALS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


class NoSync(Disk):
    """The page cache is enough here: no power is cut."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_directory(self, path: Path) -> None:
        pass


_DISK = NoSync()


class Sent(NamedTuple):
    """A batch as its producer sent it, and where it was stored."""

    data: bytes
    producer_id: int
    base_offset: int
    end_offset: int


class Loss(NamedTuple):
    """The closed segment of this number (modulo how many there are) keeps this share of its bytes."""

    segment: int
    kept: float | None


def is_of(stored: memoryview | bytes, sent: Sent) -> bool:
    """All but what the broker writes into a batch: base offset and leader epoch."""
    return bytes(stored[16:]) == sent.data[16:]


class Checked:
    """A log that lost something, against what was written to it."""

    def __init__(self, log: PartitionLog, sent: list[Sent]) -> None:
        self.log = log
        self.sent = sent
        self.holding = {offset: each for each in sent for offset in range(each.base_offset, each.end_offset)}

    def is_readable(self, sent: Sent) -> bool:
        lost = [*self.log.holes, Hole(0, self.log.start_offset)]
        return all(not hole.overlaps(sent.base_offset, sent.end_offset - 1) for hole in lost)

    def read_everywhere(self, max_bytes: int) -> None:
        log = self.log
        for offset in range(log.start_offset, log.end_offset):
            is_lost = any(hole.overlaps(offset, offset) for hole in log.holes)
            found = outcome(log.read, Read(offset, max_bytes, log.end_offset))
            if is_lost:
                assert found is ErrorCode.CORRUPT_MESSAGE, offset
                continue
            assert isinstance(found, ReadResult), (offset, found)
            assert found.records, offset
            expected = offset
            for records in found.records:
                for position, header in iter_batches(records):
                    sent = self.holding[expected]
                    assert header.base_offset == sent.base_offset
                    assert is_of(records[position : position + header.size_bytes], sent)
                    expected = sent.end_offset
            assert expected == found.next_offset

    def send_again(self) -> None:
        """A batch is acknowledged where it lies, refused, or, if it is lost and forgotten, stored anew."""
        log = self.log
        for sent in self.sent:
            if sent.producer_id < 0:
                continue
            is_there = self.is_readable(sent)
            result = outcome(append, log, sent.data)
            if not isinstance(result, AppendResult):
                assert result in _REFUSALS
                assert log.holes or log.start_offset
            elif result.duplicate:
                assert is_there
                assert result.base_offset in (sent.base_offset, NO_OFFSET)
            else:
                assert not is_there
                (records,) = log.read(Read(result.base_offset, 1 << 20, log.end_offset)).records
                assert is_of(records[: len(sent.data)], sent)


batches = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(1, 5), st.integers(0, 60)), min_size=8, max_size=60
)
losses = st.lists(
    st.builds(Loss, st.integers(0, 20), st.none() | st.floats(0, 1, exclude_max=True)), min_size=1, max_size=4
)


def written(folder: Path, config: LogConfig, specs: list[tuple[int, int, int]], *, clean: bool) -> list[Sent]:
    log = open_log(folder, config=config, disk=_DISK)
    sequences = dict.fromkeys(range(-1, 3), 0)
    sent = []
    for number, (producer_id, count, size) in enumerate(specs):
        data = batch(
            producer_id, 0, sequences[producer_id], count, timestamp=NOW_MS + number, value=b"v" * size
        )
        sequences[producer_id] += count
        result = append(log, data)
        sent.append(Sent(data, producer_id, result.base_offset, result.last_offset + 1))
    flush(log)
    checkpoint(log)
    log.close(clean=clean)
    return sent


def lose(folder: Path, wanted: list[Loss]) -> None:
    closed = sorted(folder.glob("*.log"))[:-1]
    for loss in wanted if closed else ():
        path = closed[loss.segment % len(closed)]
        if loss.kept is None:
            path.unlink(missing_ok=True)
        elif path.exists():
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * loss.kept))


@given(
    specs=batches,
    segment_bytes=st.integers(500, 1500),
    index_interval=st.integers(1, 500),
    wanted=losses,
    clean=st.booleans(),
    without_indexes=st.booleans(),
    max_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_what_closed_segments_lose_is_never_passed_and_never_acknowledged(
    specs: list[tuple[int, int, int]],
    segment_bytes: int,
    index_interval: int,
    wanted: list[Loss],
    clean: bool,
    without_indexes: bool,
    max_bytes: int,
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval)
    with TemporaryDirectory() as name:
        folder = Path(name) / "topic-0"
        sent = written(folder, config, specs, clean=clean)
        lose(folder, wanted)
        if without_indexes:
            for path in folder.glob("*index"):
                path.unlink()
        end = sent[-1].end_offset

        def opened(at: Path) -> PartitionLog:
            return open_log(at, config=config, disk=_DISK, clean=clean, recovery_point=end, start_offset=0)

        log = opened(folder)
        assert log.end_offset == end
        lost = {offset for hole in log.holes for offset in range(*hole)}
        assert log.start_offset == 0 or not clean
        Checked(log, sent).read_everywhere(max_bytes)
        log.close(clean=clean)
        shutil.copytree(folder, folder.with_name("copy"))
        again = opened(folder)
        assert {offset for hole in again.holes for offset in range(*hole)} == lost
        Checked(again, sent).send_again()
        again.close(clean=False)
        log = opened(folder.with_name("copy"))
        if log.holes:
            log.delete_records_before(log.holes[-1].end_offset)
        assert not log.holes
        Checked(log, sent).read_everywhere(max_bytes)
        log.close(clean=False)
