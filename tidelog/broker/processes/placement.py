"""Which process gets which partition, when the number of processes changes.

Owns the rule: a partition stays where it is, unless its process is gone, or a process is new and another one
has more than its share of the topic. The result depends on the catalog and the number only, so that a start
that was interrupted comes to the same one.

Pure.
"""

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    BrokerUnregistered,
    Catalog,
    Delta,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
)


def placed(catalog: Catalog, first_node_id: int, count: int) -> dict[tuple[UUID, int], int]:
    """Topic id and partition -> the number of the process that shall have it, for all partitions."""
    known = {node_id - first_node_id for node_id in catalog.brokers}
    is_grown = bool(known) and not known.issuperset(range(count))
    total: Counter[int] = Counter(dict.fromkeys(range(count), 0))
    places: dict[tuple[UUID, int], int] = {}
    for topic in catalog.topics():
        for index, process in enumerate(_placed(topic, first_node_id, count, total, is_grown=is_grown)):
            places[topic.topic_id, index] = process
            total[process] += 1
    return places


def _placed(
    topic: Topic, first_node_id: int, count: int, total: Counter[int], *, is_grown: bool
) -> Iterator[int]:
    share = -(-len(topic.partitions) // count) if is_grown else len(topic.partitions)
    present = [assigned.replicas[0] - first_node_id for assigned in topic.partitions]
    held: Counter[int] = Counter()
    for process in present:
        if 0 <= process < count and held[process] < share:
            held[process] += 1
    kept = Counter(held)
    for process in present:
        if kept[process] > 0:
            kept[process] -= 1
            yield process
        else:
            least = min(range(count), key=lambda each: (held[each], total[each], each))
            held[least] += 1
            yield least


def changes(catalog: Catalog, first_node_id: int, count: int) -> list[Delta]:
    """What the catalog has to learn of `placed`: the leaders, and the brokers that are gone."""
    places = placed(catalog, first_node_id, count)
    deltas: list[Delta] = []
    for topic in catalog.topics():
        moved: dict[int, PartitionAssignment] = {}
        for index, assigned in enumerate(topic.partitions):
            node_id = first_node_id + places[topic.topic_id, index]
            # One process alone has no controller, which would give it what had no leader.
            if assigned.replicas != (node_id,) or (count == 1 and assigned.leader_id != node_id):
                moved[index] = PartitionAssignment(
                    node_id,
                    assigned.leader_epoch + 1,
                    (node_id,),
                    (node_id,),
                    partition_epoch=assigned.partition_epoch + 1,
                )
        if moved:
            deltas.append(PartitionsChanged(topic.topic_id, moved))
    gone = sorted(node_id for node_id in catalog.brokers if not 0 <= node_id - first_node_id < count)
    return deltas + [BrokerUnregistered(node_id) for node_id in gone]
