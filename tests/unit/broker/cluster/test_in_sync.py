"""Which replicas are in sync, and which are eligible to lead."""

from uuid import UUID

import pytest

from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    NothingToChange,
    PartitionAssignment,
    Topic,
)
from tidelog.broker.cluster.in_sync import InSyncWanted, in_sync_change, with_in_sync
from tidelog.broker.cluster.registration import replica_epoch_of

TOPIC_ID = UUID(int=7)
EPOCHS = {node_id: UUID(int=(1 << 127) + 100 + node_id) for node_id in (1, 2, 3)}


def image(isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> Catalog:
    partition = PartitionAssignment(1, 4, (1, 2, 3), isr, 9, elr)
    brokers = [BrokerRegistration(node_id, (), EPOCHS[node_id]) for node_id in (1, 2, 3)]
    return Catalog("cluster", [Topic("t", TOPIC_ID, (partition,))], brokers=brokers)


@pytest.mark.parametrize(
    ("before", "in_sync", "least", "after"),
    [
        (((1, 2, 3), ()), (1, 2), 2, ((1, 2), ())),
        (((1, 2), ()), (1,), 2, ((1,), (2,))),
        (((1, 2, 3), ()), (1,), 3, ((1,), (2, 3))),
        (((1,), (2,)), (1, 3), 3, ((1, 3), (2,))),
        (((1,), (2,)), (1, 3), 2, ((1, 3), ())),
        (((1,), (2,)), (1, 2), 9, ((1, 2), ())),
        (((3, 1), ()), (1,), 1, ((1,), ())),
        (((1,), (2,)), (1,), 1, ((1,), ())),
    ],
)
def test_who_leaves_a_set_that_is_too_small_is_eligible_to_lead(
    before: tuple[tuple[int, ...], tuple[int, ...]],
    in_sync: tuple[int, ...],
    least: int,
    after: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    now = with_in_sync(PartitionAssignment(1, 4, (1, 2, 3), before[0], 9, before[1]), in_sync, least)
    assert (now.isr, now.elr, now.partition_epoch, now.leader_epoch) == (*after, 10, 4)


def test_a_leader_changes_what_it_leads_in_its_epoch_with_live_brokers_as_they_fetched() -> None:
    fetched = {node_id: replica_epoch_of(incarnation) for node_id, incarnation in EPOCHS.items()}
    both = InSyncWanted(4, {2: fetched[2], 3: fetched[3] + 1})
    catalog = image((1,))
    delta = in_sync_change(catalog, 1, TOPIC_ID, {0: both, 5: both}, 2)
    assert delta.partitions == {0: PartitionAssignment(1, 4, (1, 2, 3), (1, 2), 10)}
    failed = image((1,))
    failed.apply(BrokerRegistered(failed.brokers[2]._replace(offline=((TOPIC_ID, 0),))))
    with pytest.raises(NothingToChange):
        in_sync_change(failed, 1, TOPIC_ID, {0: both}, 2)
    catalog.apply(BrokerRegistered(catalog.brokers[2]._replace(is_fenced=True)))
    refused = (
        (1, {0: both}),
        (1, {0: InSyncWanted(3, {}, (1,))}),
        (2, {0: InSyncWanted(4, {}, (1,))}),
        (1, {0: InSyncWanted(4, {}, (1,))}),
    )
    for leader_id, wanted in refused:
        with pytest.raises(NothingToChange):
            in_sync_change(catalog, leader_id, TOPIC_ID, wanted, 2)
