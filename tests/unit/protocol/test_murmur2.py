"""Keys go where the Java client sends them."""

import pytest

from tidelog.protocol.murmur2 import murmur2


# From org.apache.kafka.common.utils.UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_javas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF
