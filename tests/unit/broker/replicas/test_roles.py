"""What a broker is to a partition, and which partitions a change may give another role."""

from uuid import uuid4

import pytest

from tidelog.broker.cluster.catalog import (
    Catalog,
    Delta,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.replicas.roles import Role, partitions_held, partitions_touched, role_in

ID = uuid4()
HERE = PartitionAssignment(1, 3, (1, 2), (1,))
ELSEWHERE = PartitionAssignment(2, 4, (2, 3), (2, 3))
FOLLOWED = PartitionAssignment(2, 5, (2, 1), (2,))
LEADERLESS = PartitionAssignment(-1, 6, (1, 2), (1,))
TOPIC = Topic("t", ID, (HERE, ELSEWHERE, FOLLOWED, LEADERLESS))


def test_a_broker_leads_follows_or_has_nothing_of_a_partition() -> None:
    roles = [role_in(TOPIC, index, 1) for index in range(5)]
    assert roles == [Role(True, HERE), None, Role(False, FOLLOWED), Role(False, LEADERLESS), None]
    assert role_in(None, 0, 1) is None
    assert partitions_held(TOPIC, 1) == [0, 2, 3]
    assert partitions_held(TOPIC, 3) == [1]
    assert partitions_held(TOPIC, 1, first=1) == [2, 3]


@pytest.mark.parametrize(
    ("delta", "touched"),
    [
        (TopicDeleted(ID), [0, 1, 2, 3]),
        (PartitionsAdded(ID, (HERE, HERE)), [4, 5]),
        (PartitionsChanged(ID, {3: LEADERLESS, 1: ELSEWHERE}), [1, 3]),
        (TopicConfigsChanged(ID, {}), []),
        (ProducerIdsReserved(1000), []),
    ],
)
def test_a_change_touches_only_the_partitions_that_it_is_about(delta: Delta, touched: list[int]) -> None:
    catalog = Catalog("c")
    created = catalog.apply(TopicCreated(TOPIC))
    assert list(partitions_touched(created)) == [0, 1, 2, 3]
    assert list(partitions_touched(catalog.apply(delta))) == touched
