"""Keys go where the Java client sends them."""

import random
from itertools import pairwise

import pytest

from tidelog.client.producer.accumulator import Accumulator
from tidelog.client.producer.routes import Route, consistent, next_sticky_partition
from tidelog.protocol.errors import ErrorCode
from tidelog.wire.metadata import PartitionInfo, TopicInfo


def topic(partitions: int, without_leader: tuple[int, ...] = ()) -> TopicInfo:
    infos = tuple(
        PartitionInfo(index, -1 if index in without_leader else 1, 0, (1,), (1,))
        for index in range(partitions)
    )
    return TopicInfo("t", None, False, infos, ErrorCode.NONE)


def route(info: TopicInfo, **settings: object) -> tuple[Route, Accumulator]:
    accumulator = Accumulator(max_batch_size=100, linger_ms=0, buffer_memory=1_000, delivery_timeout_ms=1_000)
    return Route(info, accumulator, settings.get("partitioner"), random.Random(1)), accumulator  # type: ignore[arg-type]


def test_keyless_batches_go_to_another_partition_each_time_but_never_to_one_without_a_leader() -> None:
    it, _ = route(topic(4, without_leader=(2,)))
    visited = []
    for _ in range(50):
        visited.append(it.sticky.key.partition)
        it.move_on()
    assert set(visited) == {0, 1, 3}
    assert all(here != there for here, there in pairwise(visited))


def test_without_any_leader_a_partition_is_chosen_all_the_same() -> None:
    assert next_sticky_partition(random.Random(1), [], 3) == 3


def test_a_key_goes_to_its_partition_even_if_that_has_no_leader() -> None:
    it, _ = route(topic(4, without_leader=(0, 1, 2, 3)))
    assert it.choose(b"foobar").key.partition == (-790332482 & 0x7FFFFFFF) % 4


def test_more_partitions_move_keys_at_once() -> None:
    it, accumulator = route(topic(1))
    assert it.choose(b"foobar").key.partition == 0
    it.update(topic(7), accumulator)
    assert it.choose(b"foobar").key.partition == (-790332482 & 0x7FFFFFFF) % 7


def test_an_own_partitioner_sees_key_all_partitions_and_led_ones() -> None:
    seen = []

    def partitioner(key: bytes | None, everything: list[int], led: list[int]) -> int:
        seen.append((key, list(everything), list(led)))
        return 1

    it, _ = route(topic(3, without_leader=(0,)), partitioner=partitioner)
    assert it.choose(None).key.partition == 1
    assert seen == [(None, [0, 1, 2], [1, 2])]


def test_a_partition_that_is_not_there_is_refused() -> None:
    it, _ = route(topic(3))
    with pytest.raises(ValueError, match="expected a partition of 0 to 2 of topic"):
        it.named(3)


def test_the_consistent_partitioner_takes_the_crc_of_the_key() -> None:
    it, _ = route(topic(7), partitioner=consistent)
    # The check value of CRC-32: 0xCBF43926 for these digits, 0 for nothing.
    assert it.choose(b"123456789").key.partition == 0xCBF43926 % 7
    assert it.choose(None).key.partition == 0
