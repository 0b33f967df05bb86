"""murmur2 against kafka-python's, which was ported by others."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from tidelog.protocol.murmur2 import murmur2


@given(st.binary(max_size=64))
def test_murmur2_agrees_with_an_independent_port(data: bytes) -> None:
    assert murmur2(data) == their_murmur2(data) & 0xFFFFFFFF
