"""What an application names: partitions and offsets, in each form, and what is none of them."""

from typing import Any

import pytest

from tidelog.client import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tidelog.client.types import (
    group_metadata,
    offset_and_metadata,
    offsets_to_commit,
    topic_partition,
    topic_partitions,
)


@pytest.mark.parametrize("key", [TopicPartition("t", 1), ("t", 1)])
def test_a_partition_is_a_topic_and_a_number(key: tuple[str, int]) -> None:
    assert topic_partition(key) == TopicPartition("t", 1)


@pytest.mark.parametrize("key", ["t1", ("t", "1"), ("t",), (1, "t"), None])
def test_what_names_no_partition_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="expected TopicPartition"):
        topic_partition(key)


@pytest.mark.parametrize("keys", ["t", TopicPartition("t", 1), None])
def test_partitions_are_a_list_of_them(keys: Any) -> None:
    assert topic_partitions({("t", 1)}) == [TopicPartition("t", 1)]
    with pytest.raises(TypeError, match="expected a list of TopicPartition"):
        topic_partitions(keys)


@pytest.mark.parametrize("offset", [5, (5, ""), OffsetAndMetadata(5)])
def test_an_offset_to_commit_has_three_forms(offset: Any) -> None:
    assert offset_and_metadata(offset) == OffsetAndMetadata(5)


@pytest.mark.parametrize("offset", ["5", 5.0, ("5", ""), (5, "", 1), None])
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(TypeError, match="expected an int"):
        offset_and_metadata(offset)


def test_a_negative_offset_is_not_committed() -> None:
    with pytest.raises(ValueError, match="expected an offset to commit of 0 or more, got -5"):
        offset_and_metadata(-5)


def test_offsets_to_commit_are_a_dict_by_partition() -> None:
    assert offsets_to_commit({("t", 1): 5}) == {TopicPartition("t", 1): OffsetAndMetadata(5)}
    with pytest.raises(TypeError, match="expected a dict"):
        offsets_to_commit([TopicPartition("t", 1)])


def test_a_group_is_named_by_its_id_or_by_a_member() -> None:
    assert group_metadata("g") == group_metadata(ConsumerGroupMetadata("g"))
    with pytest.raises(TypeError, match=r"group: expected consumer\.group_metadata.*, got None"):
        group_metadata(None)  # type: ignore[arg-type]
