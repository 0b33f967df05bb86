"""Facts of a ProduceRequest as a whole, before any of its batches is appended.

Owns what may be said without a partition: sizes, copies, names for ids, partitions that are named
twice.
Invariant: loops over partitions count them with a `Pace`, except for those that only copy or add up.
"""

from collections.abc import Callable
from typing import Self
from uuid import UUID

from tidelog.protocol.hot import ProduceRequest, TopicKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps


class NamedTopic(str):
    """The name of a topic that a request names by id: the answer names it by id, as a UUID is written there.
    Empty for an unknown id."""

    __slots__ = ("bytes",)
    bytes: bytes

    def __new__(cls, name: str, topic_id: UUID) -> Self:
        named = super().__new__(cls, name)
        named.bytes = topic_id.bytes
        return named


def named(topic: TopicKey, name_of: Callable[[TopicKey], str]) -> str:
    """The name by which a request's topic is found, and answered."""
    return NamedTopic(name_of(topic), topic) if isinstance(topic, UUID) else topic


def by_name(request: ProduceRequest, name_of: Callable[[TopicKey], str]) -> Steps[ProduceRequest]:
    """The request with the names of topics that it names by id."""
    pace = Pace(CHECKS_PER_STEP)
    topics = []
    for topic, partitions in request.topics:
        topics.append((named(topic, name_of), partitions))
        if pace.spent():
            yield
    return request._replace(topics=topics)


def size_bytes(request: ProduceRequest) -> int:
    """Of all batches."""
    return sum(len(batch) for _, partitions in request.topics for _, batch in partitions if batch is not None)


def copied(request: ProduceRequest) -> ProduceRequest:
    """A copy whose batches stay valid after the frame."""
    topics = [
        (topic, [(index, None if batch is None else bytes(batch)) for index, batch in partitions])
        for topic, partitions in request.topics
    ]
    return request._replace(topics=topics)


def named_twice(request: ProduceRequest) -> Steps[set[tuple[str, int]]]:
    """The partitions that the request names more than once."""
    pace = Pace(CHECKS_PER_STEP)
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic, partitions in request.topics:
        for index, _ in partitions if topic else ():
            key = (topic, index)
            (repeated if key in seen else seen).add(key)
            if pace.spent():
                yield
        if pace.spent():
            yield
    return repeated
