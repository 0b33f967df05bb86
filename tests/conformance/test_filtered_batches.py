"""What a cleaner leaves of batches is read by other projects' clients as by ours."""

from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.unit.protocol.test_filtering import KEPT, NOW_MS, batch, expected, filtered
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import emptied, read_batch_header


@pytest.mark.parametrize("reader", [AiokafkaRecords, KafkaPythonRecords])
@pytest.mark.parametrize("codec", Compression)
def test_batches_without_records_and_with_a_delete_horizon_are_read(reader: Any, codec: Compression) -> None:
    data = batch(codec)
    empty = emptied(read_batch_header(data))
    found, records = [], reader(empty + filtered(data, KEPT, NOW_MS + 86_400_000) + empty)
    while records.has_next():
        following = records.next_batch()
        assert following.validate_crc()
        found += [(each.offset, each.timestamp, each.key, each.value) for each in following]
    assert found == [(each.offset, each.timestamp, each.key, each.value) for each in expected(data)]
