"""Partitions stay where they are, unless their process is gone or another one is new."""

from collections import Counter
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
)
from tidelog.broker.processes.placement import changes, placed

FIRST = 1


def catalog(*topics: tuple[int, ...], brokers: int) -> Catalog:
    """Topics by the processes of their partitions."""
    return Catalog(
        "c",
        [
            Topic(f"t{number}", UUID(int=number + 1), tuple(map(assigned, processes)))
            for number, processes in enumerate(topics)
        ],
        brokers=[BrokerRegistration(FIRST + process, ()) for process in range(brokers)],
    )


def assigned(process: int) -> PartitionAssignment:
    node_id = FIRST + process
    return PartitionAssignment(node_id, 5, (node_id,), (node_id,), 7)


def processes_of(image: Catalog, count: int) -> list[list[int]]:
    places = placed(image, FIRST, count)
    return [
        [places[topic.topic_id, index] for index in range(len(topic.partitions))] for topic in image.topics()
    ]


def test_with_the_same_processes_nothing_moves_however_uneven_it_is() -> None:
    image = catalog((0, 0, 0, 0), (1,), (0,), brokers=2)
    assert processes_of(image, 2) == [[0, 0, 0, 0], [1], [0]]
    assert changes(image, FIRST, 2) == []


def test_partitions_of_processes_that_are_gone_go_where_a_topic_and_then_all_topics_have_the_fewest() -> None:
    assert processes_of(catalog((0, 1, 2, 3), (3,), (3,), (2, 2), brokers=4), 2) == [
        [0, 1, 0, 1],
        [0],
        [1],
        [0, 1],
    ]


def test_new_processes_get_their_share_of_each_topic() -> None:
    for count in (2, 3, 4):
        (found,) = processes_of(catalog((0,) * 12, brokers=1), count)
        assert Counter(found) == dict.fromkeys(range(count), 12 // count)
    assert processes_of(catalog((0,), (0, 0), brokers=1), 3) == [[0], [0, 1]]


def test_the_catalog_learns_new_leaders_in_later_epochs_and_who_is_gone() -> None:
    image = catalog((0, 1), brokers=2)
    deltas = changes(image, FIRST, 1)
    assert deltas[-1] == BrokerUnregistered(2)
    for delta in deltas:
        image.apply(delta)
    (topic,) = image.topics()
    assert topic.partitions == (assigned(0), PartitionAssignment(1, 6, (1,), (1,), 8))
    assert changes(image, FIRST, 1) == []


def test_one_process_leads_also_partitions_without_a_leader() -> None:
    image = catalog((0, 1), brokers=2)
    (topic,) = image.topics()
    offline = PartitionAssignment(NO_LEADER, 6, (1,), (1,), 8)
    image.apply(PartitionsChanged(topic.topic_id, {0: offline}))
    assert changes(image, FIRST, 2) == []
    for delta in changes(image, FIRST, 1):
        image.apply(delta)
    (topic,) = image.topics()
    assert topic.partitions[0] == PartitionAssignment(1, 7, (1,), (1,), 9)
    assert {each.leader_id for each in topic.partitions} == {1}


def test_an_empty_catalog_has_nothing_to_change() -> None:
    assert changes(Catalog("c"), FIRST, 4) == []
