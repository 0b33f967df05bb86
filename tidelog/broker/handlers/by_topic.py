"""What requests and answers name by topic and partition, read and written in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, each

_T = TypeVar("_T")
NamedPartitions = dict[str, dict[int, None]]


def named_once(
    topics: Iterable[Any], pace: Pace, *, name: str = "name", partitions: str = "partitions"
) -> Steps[NamedPartitions]:
    """Topic -> the partitions that a request names, each once, in their order; from these fields."""
    named: NamedPartitions = {}
    for topic in topics:
        indexes = topic[partitions]
        named.setdefault(topic[name], {}).update(dict.fromkeys(indexes))
        if pace.spent(1 + len(indexes) // NUMBERS_PER_ELEMENT):
            yield
    return named


def answers_by_topic(
    asked: Iterable[tuple[str, Iterable[_T]]],
    answer: Callable[[str, _T], Any],
    pace: Pace,
    *,
    name: str = "name",
    partitions: str = "partitions",
) -> Steps[list[Any]]:
    """`answer(topic, partition)` for each partition that is asked for, by topic; in these fields."""
    topics = []
    for topic, wanted in asked:
        answers = yield from each(partial(answer, topic), wanted, pace)
        topics.append({name: topic, partitions: answers})
        if pace.spent():
            yield
    return topics
