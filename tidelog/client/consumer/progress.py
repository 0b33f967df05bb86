"""Which of the returned records an application has finished.

Owns: the records of the last call that returned some. Invariants: they count as finished when the application
asks for the next ones, so a position that is committed automatically never covers a record that the
application still processes. Setting `returned` is all that a record costs. Pure.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tidelog.client.types import ConsumerRecord
from tidelog.protocol.types import TopicPartition

Returned: TypeAlias = ConsumerRecord[Any, Any] | Mapping[TopicPartition, int] | None
"""One record, or the first offset of the records of each partition."""


class Progress:
    """`returned` is what the last call returned: a new object for each call. None if the application has
    finished it, or waits for more."""

    __slots__ = ("asked", "returned", "waiting")

    def __init__(self) -> None:
        self.returned: Returned = None
        self.asked = 0
        """Calls that asked for records, without those that took the next one of an open batch."""
        self.waiting = 0
        """Calls that wait for records now."""

    def finish(self) -> None:
        """The application asks for more records, or needs none."""
        self.returned = None
        self.asked += 1

    def unfinished(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that the application has not finished."""
        returned = self.returned
        if isinstance(returned, ConsumerRecord):
            return {returned.topic_partition: returned.offset}
        return dict(returned or {})
