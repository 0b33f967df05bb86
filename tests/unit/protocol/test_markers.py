"""The short way to read a marker gives what the rules for control batches of any form give."""

import pytest

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import TransactionMarker, build_marker, read_marker
from tidelog.protocol.records.markers import EndTransactionMarker, read_any_marker


def outcome(read: object, batch: bytes) -> EndTransactionMarker | str:
    try:
        return read(batch, 2)  # type: ignore[no-any-return,operator]
    except ProtocolError as error:
        return str(error)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_with_any_bit_changed_reads_as_by_the_rules(is_commit: bool) -> None:
    built = bytes(2) + build_marker(TransactionMarker(5, 3, 7, is_commit), 1_700_000_000_000)
    assert read_marker(built, 2) == read_any_marker(built, 2) == (is_commit, 7)
    for position in range(2, len(built)):
        for bit in range(8):
            changed = bytearray(built)
            changed[position] ^= 1 << bit
            assert outcome(read_marker, changed) == outcome(read_any_marker, changed)
        assert outcome(read_marker, built[:position]) == outcome(read_any_marker, built[:position])
