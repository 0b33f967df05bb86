"""Which topics a consumer subscribed to: by their names, or by a pattern.

Owns: the choice among the topics of a cluster. Invariants: a pattern never matches an internal topic; it is
matched from the beginning of a name, as aiokafka does. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.arguments import list_of_names
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError, broker_error
from tidelog.wire.metadata import ClusterImage, TopicInfo


class TopicSubscription(NamedTuple):
    """The topics that a consumer subscribed to. Exactly one of `names` and `pattern` is set."""

    names: frozenset[str] | None
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> TopicSubscription:
        """Raises ValueError unless topics or a valid pattern are given, and not both; TypeError for a single
        text as topics."""
        for each in (topics := list_of_names(topics, "topics")):
            if not isinstance(each, str):
                raise TypeError(f"expected a str as topic name, got {each!r}")
        names = frozenset(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("give topics or a pattern, one of the two")
        if pattern is None:
            return cls(names, None)
        try:
            return cls(None, re.compile(pattern))
        except re.error as error:
            raise ValueError(f"pattern: expected a regular expression, got {pattern!r} ({error})") from error

    def refusal(self, image: ClusterImage) -> ClientError | None:
        """The error of a named topic that the user may not see."""
        for name in self.names or ():
            info = image.topics.get(name)
            if info is not None and info.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return broker_error(info.error, f"topic {name!r}")
        return None

    def absent(self, image: ClusterImage) -> set[str]:
        """The named topics that do not exist."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {info.name for info in self.found(image) if info.error is unknown}

    def is_incomplete(self, image: ClusterImage) -> bool:
        """Whether newer metadata may have more: a topic was not asked for yet, or it may change."""
        is_unasked = self.names is not None and not self.names <= image.topics.keys()
        return is_unasked or self.may_change(image)

    def may_change(self, image: ClusterImage) -> bool:
        """Whether a topic that the metadata name may be created, or created again, or allowed."""
        return self.refusal(image) is not None or any(info.error.retriable for info in self.found(image))

    def topics(self, image: ClusterImage) -> frozenset[str]:
        """The names of the topics; of those that exist, if it is a pattern."""
        if self.names is not None:
            return self.names
        pattern = self.pattern
        return frozenset(
            name
            for name, info in image.topics.items()
            if pattern is not None and info.partitions and not info.is_internal and pattern.match(name)
        )

    def found(self, image: ClusterImage) -> list[TopicInfo]:
        """What the metadata say of the topics, sorted by name."""
        return [info for name in sorted(self.topics(image)) if (info := image.topics.get(name))]

    def partitions(self, image: ClusterImage, read: Iterable[TopicPartition]) -> list[TopicPartition]:
        """All partitions of the topics. Those in `read` stay while their topic is absent: a broker that
        starts may not know it yet, and their positions must not be lost."""
        infos = self.found(image)
        absent = {info.name for info in infos if info.error.retriable}
        found = [TopicPartition(info.name, each.partition) for info in infos for each in info.partitions]
        return found + [key for key in read if key.topic in absent and key not in found]
