"""From records as they lie in a batch to records as an application reads them.

Owns: the one loop that turns the former into the latter; it runs for every record that is consumed.
Invariants: deserializers see bytes or None, once for each record handed out.
Callers: the consumer.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from client.types import ConsumerRecord, TimestampType, TopicPartition
from protocol.records import Record
from protocol.types import NO_LEADER_EPOCH

__all__ = ["Deserializer", "converted"]

Deserializer: TypeAlias = Callable[[bytes | None], Any]

_TYPES = {kind.value: kind for kind in TimestampType}


def converted(
    key: TopicPartition, records: list[Record], to_key: Deserializer | None, to_value: Deserializer | None
) -> list[ConsumerRecord]:
    """`records` of the partition `key`; raises whatever the deserializers raise."""
    topic, partition = key
    new_record = tuple.__new__
    found: list[ConsumerRecord] = []
    add = found.append
    for offset, timestamp, kind, raw_key, raw_value, headers in records:
        fields = (
            topic,
            partition,
            offset,
            timestamp,
            _TYPES[kind],
            raw_key if to_key is None else to_key(raw_key),
            raw_value if to_value is None else to_value(raw_value),
            headers,
            -1 if raw_key is None else len(raw_key),
            -1 if raw_value is None else len(raw_value),
            NO_LEADER_EPOCH,
        )
        add(new_record(ConsumerRecord, fields))
    return found
