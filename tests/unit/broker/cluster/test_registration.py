"""A broker starts with the data folder that it had last, or an operator gives up what another one had."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tidelog.broker.cluster.catalog import (
    NO_ID,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Change,
    PartitionAssignment,
    Topic,
    TopicCreated,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.membership import Membership
from tidelog.broker.cluster.registration import registering
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster.store_sharing import StoreSharing

FOLDER, LAST = uuid4(), uuid4()
NEW = BrokerRegistration(1, (), uuid4(), FOLDER, is_fenced=True)


def image(
    directory_id: UUID = FOLDER,
    incarnation: UUID = LAST,
    isr: tuple[int, ...] = (1,),
    elr: tuple[int, ...] = (),
) -> Catalog:
    topic = Topic("t", uuid4(), (PartitionAssignment(1, 0, (1, 2), isr, elr=elr),))
    return Catalog("c", [topic], brokers=[BrokerRegistration(1, (), incarnation, directory_id)])


def test_the_same_folder_registers_again_whatever_starts_with_it_failed_since() -> None:
    for known in ([LAST], [uuid4(), LAST, uuid4()]):
        assert registering(image(), NEW, known, None) == BrokerRegistered(NEW)


def test_a_new_broker_and_one_that_was_alone_before_have_nothing_to_lose() -> None:
    for before in (Catalog("c"), image(NO_ID, NO_ID)):
        assert registering(before, NEW, [], None) == BrokerRegistered(NEW)


@pytest.mark.parametrize("sets", [((1, 2), ()), ((2,), (1,)), ((1,), (2,))])
def test_a_disk_whose_records_others_have_too_may_be_replaced(
    sets: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    for before in (image(uuid4(), LAST, *sets), image(FOLDER, uuid4(), *sets)):
        assert registering(before, NEW, [LAST], None) == BrokerRegistered(NEW)


@pytest.mark.parametrize(
    ("before", "known", "why"),
    [
        (image(uuid4()), [LAST], "in another data folder"),
        (image(), [uuid4()], "after this copy of its data folder was made"),
    ],
)
def test_less_than_it_had_is_refused_until_just_that_loss_is_accepted(
    before: Catalog, known: list[UUID], why: str
) -> None:
    for word in (None, uuid4()):
        with pytest.raises(StoreError, match=f"{why}.* those of t-0\\. .*broker.lost.incarnation={LAST.hex}"):
            registering(before, NEW, known, word)
    assert registering(before, NEW, known, LAST) == BrokerRegistered(NEW)


async def test_no_leader_may_add_what_a_lost_folder_had_fetched(tmp_path: Path) -> None:
    sharing = StoreSharing(SqliteStore(tmp_path / "cluster.db", node_id=0))
    store = sharing.member()
    cluster = Cluster(await store.load(), store)
    for broker in (BrokerRegistration(1, (), uuid4()), BrokerRegistration(2, (), LAST, FOLDER)):
        await cluster.change(lambda _, broker=broker: BrokerRegistered(broker))
    topic = Topic("t", uuid4(), (PartitionAssignment(1, 0, (1, 2), (1, 2)),))
    await cluster.change(lambda _: TopicCreated(topic))
    steps: list[tuple[tuple[int, ...], bool]] = []

    def note(_: Change) -> None:
        assigned = cluster.catalog.topic_by_id(topic.topic_id).partitions[0]  # type: ignore[union-attr]
        steps.append((assigned.isr, cluster.catalog.brokers[2].is_fenced))

    cluster.follow(note)
    membership = Membership(
        cluster, store, BrokerRegistration(2, ()), session_timeout_ms=1_000, least_in_sync=lambda _: 1
    )
    await membership.begin()
    membership.check(uuid4(), (), None)
    await membership.register((), None)
    assert steps == [((1, 2), True), ((1,), True), ((1,), True)]
    assert cluster.catalog.brokers[2].incarnation == membership.incarnation
    await cluster.close()
    await sharing.close()
