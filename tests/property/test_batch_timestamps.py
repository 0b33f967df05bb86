"""Whatever a batch's header says of timestamps, its records stay for retention.ms, and a time finds them."""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.storage.support import NOW_MS, append, flush, open_log
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder, largest_timestamp, with_max_timestamp

RETENTION_MS = LogConfig().retention_ms
# Up to an hour ahead, which is what message.timestamp.after.max.ms allows. Not 0, the first millisecond of
# 1970: where it follows a record without a timestamp, the header is that of a batch without any.
timestamps = st.sampled_from([-1, 1, NOW_MS - 2 * RETENTION_MS, NOW_MS - 1, NOW_MS]) | st.integers(
    1, NOW_MS + 3_600_000
)
_WRITTEN_MS = NOW_MS - RETENTION_MS // 2


class Sent(NamedTuple):
    """The batch that a client sends: its records' timestamps, and what it puts into MaxTimestamp."""

    timestamps: list[int]
    max_timestamp: int
    codec: Compression

    def encoded(self) -> bytes:
        builder = RecordBatchBuilder()
        for timestamp in self.timestamps:
            builder.append(timestamp, None, b"value")
        return with_max_timestamp(builder.build(self.codec, -1, -1, -1), self.max_timestamp)


@st.composite
def sent(draw: st.DrawFn) -> Sent:
    """MaxTimestamp as clients set it: the largest; librdkafka's, which begins at 0; never set; too small."""
    stamps = draw(st.lists(timestamps, min_size=1, max_size=4))
    is_led_by_first = stamps[0] == max(stamps)
    wrong = [-1, 0, stamps[0] - 1] if is_led_by_first else []
    largest = draw(st.sampled_from([max(stamps), max(0, *stamps), *wrong]))
    return Sent(stamps, largest, draw(st.sampled_from(list(Compression))))


@given(st.lists(sent(), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_no_record_leaves_before_its_time(batches: list[Sent], restarted: bool, clean: bool) -> None:
    config = LogConfig(segment_bytes=300)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = open_log(folder, config=config)
        for each in batches:
            append(log, each.encoded())
        flush(log)
        if restarted:
            log.close(clean=clean)
            log = open_log(folder, config=config, clean=clean, recovery_point=log.recovery_point)
        for path in folder.glob("*.log"):
            os.utime(path, ns=(_WRITTEN_MS * 1_000_000, _WRITTEN_MS * 1_000_000))
        stamps = [stamp for each in batches for stamp in each.timestamps]
        for target in {0, NOW_MS, *(stamp for stamp in stamps if stamp >= 0)}:
            expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= target), None)
            found = log.offset_for_timestamp(target)
            assert (found and found.offset) == expected
        log.apply_retention(NOW_MS)
        offset = 0
        for each in batches:
            is_young = max(each.timestamps) >= NOW_MS - RETENTION_MS or max(each.timestamps) < 0
            offset += len(each.timestamps)
            assert not (is_young and log.start_offset >= offset)
        # When everything is too old, everything goes.
        log.apply_retention(NOW_MS + 2 * RETENTION_MS)
        assert log.start_offset == log.end_offset == offset
        log.close(clean=False)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 7))
def test_the_largest_timestamp_contradicts_no_field_of_the_header(
    base: int, largest: int, attributes: int
) -> None:
    believed = largest_timestamp(attributes, base, largest)
    assert believed == -1 or believed > 0 or base == 0
    assert believed >= base or believed == -1
    assert believed in (base, largest, -1)
    assert largest_timestamp(attributes | 8, base, largest) == largest
