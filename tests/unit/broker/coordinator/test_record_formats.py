"""Records by class, keys by version."""

import pytest

from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.protocol.errors import ProtocolError

FORMATS = RecordFormats((OFFSET_RECORDS,))


def test_a_kind_is_known_by_the_version_of_its_keys() -> None:
    assert FORMATS.knows(b"\x00\x00more")
    assert FORMATS.knows(b"\x00\x01")
    assert not FORMATS.knows(b"\x00\x02")
    assert not FORMATS.knows(b"\xff\xff")
    with pytest.raises(ProtocolError):
        FORMATS.knows(b"\x00")
