"""Batches to Arrow: what is unpacked at the same time is bounded, however well it was compressed."""

import pytest

from tests.unit.pipeline.batches import expected_rows, make_batch, plain_rows
from tidelog.pipeline.arrow import columnar
from tidelog.protocol.compression import Compression

ROWS = [(1_700_000_000_000, None, bytes(1000), ())] * 4


def test_compressed_batches_are_decoded_together_only_as_far_as_memory_is_meant_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"".join(
        make_batch(ROWS, base_offset=number * len(ROWS), compression=Compression.ZSTD) for number in range(5)
    )
    assert len(list(columnar.decode_record_batches(data, topic="t", partition=0))) == 1
    monkeypatch.setattr(columnar, "_UNPACKED_BYTES", 9000)
    found = list(columnar.decode_record_batches(data, topic="t", partition=0))
    assert [each.num_rows for each in found] == [8, 8, 4]
    assert plain_rows(found) == expected_rows(data, "t", 0)
