"""Arguments of an application: each form is taken, and what is wrong is said by its name, with what came."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tidelog.client import Consumer, ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from tidelog.client.arguments import list_of_names, timeout_seconds, whole_number
from tidelog.client.types import (
    group_metadata,
    offset_and_metadata,
    offsets_to_commit,
    topic_partition,
    topic_partitions,
)

KEY, FIVE = TopicPartition("t", 1), OffsetAndMetadata(5)


@pytest.mark.parametrize(
    ("take", "forms", "taken"),
    [
        (partial(whole_number, what="partition", low=None), [-1], -1),
        (timeout_seconds, [0.5], 0.0005),
        (partial(list_of_names, what="topics"), [{"orders"}, ["orders"]], ["orders"]),
        (topic_partition, [KEY, ("t", 1)], KEY),
        (topic_partitions, [{("t", 1)}, [KEY]], [KEY]),
        (offset_and_metadata, [5, (5, ""), FIVE], FIVE),
        (offsets_to_commit, [{("t", 1): 5}], {KEY: FIVE}),
        (group_metadata, ["g", ConsumerGroupMetadata("g")], ConsumerGroupMetadata("g")),
    ],
)
def test_an_argument_has_each_of_its_forms(take: Callable[[Any], object], forms: Any, taken: object) -> None:
    assert [take(each) for each in forms] == [taken] * len(forms)


@pytest.mark.parametrize(
    ("take", "wrong", "said"),
    [
        (partial(whole_number, what="offset"), ["0", 0.0, None], "offset: expected a whole number, got {}"),
        (timeout_seconds, ["5", None], "timeout_ms: expected a number of milliseconds, got {}"),
        (partial(list_of_names, what="topics"), ["orders", None, 5], "topics: expected a list of .*got .*{}"),
        (topic_partition, ["t1", ("t", "1"), ("t",), (1, "t"), None], "expected TopicPartition"),
        (topic_partitions, ["t", KEY, None], "expected a list of TopicPartition"),
        (offset_and_metadata, ["5", 5.0, ("5", ""), (5, "", 1), None], "expected an int"),
        (offsets_to_commit, [[KEY]], "expected a dict"),
        (group_metadata, [None], r"group: expected consumer\.group_metadata.*, got None"),
        *(
            (
                lambda function, what=what: Producer(**{what: function}),
                ["utf-8"],
                f"{what}: expected .*, got {{}}",
            )
            for what in ("key_serializer", "value_serializer", "partitioner", "session", "cluster")
        ),
        *(
            (
                lambda function, what=what: Consumer("t", **{what: function}),
                ["utf-8"],
                f"{what}: expected a function, got {{}}",
            )
            for what in ("key_deserializer", "value_deserializer")
        ),
    ],
)
def test_what_is_none_of_its_forms_is_refused(take: Callable[[Any], object], wrong: Any, said: str) -> None:
    for each in wrong:
        with pytest.raises(TypeError, match=said.format(repr(each))):
            take(each)


def test_a_number_below_its_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="max_records: expected 1 or more, got 0"):
        whole_number(0, "max_records", low=1)
    with pytest.raises(ValueError, match="expected an offset to commit of 0 or more, got -5"):
        offset_and_metadata(-5)
