"""Which partition a group or a transactional id belongs to: as Kafka says, so its tools find them."""

import pytest

from tidelog.broker.coordinator.shards import partition_of

# The hash of Java's String. Kafka takes the amount of a negative one ("zzzzzz" has -685785664), and 0 for
# Integer.MIN_VALUE ("polygenelubricants").
HASHES = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "polygenelubricants": 0,
    "zzzzzz": 685785664,
    "Hello, World!": 1498789909,
}


@pytest.mark.parametrize("count", [1, 5, 50, 1_000_003])
def test_a_group_is_in_the_partition_that_java_s_hash_says(count: int) -> None:
    for group_id, hashed in HASHES.items():
        assert partition_of(group_id, count) == hashed % count


def test_a_character_outside_of_the_basic_plane_counts_as_two() -> None:
    assert partition_of("\U0001f600", 2**31) == (31 * 0xD83D + 0xDE00) % 2**31
