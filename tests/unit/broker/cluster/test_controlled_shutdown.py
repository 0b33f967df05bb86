"""A broker that stops waits for live replicas that catch up, where too few would stay in sync without it."""

from uuid import UUID

import pytest

from tidelog.broker.cluster.catalog import BrokerRegistration, Catalog, PartitionAssignment, Topic
from tidelog.broker.cluster.controlled_shutdown import Awaited, awaited_by

TOPIC_ID = UUID(int=7)


def image(
    isr: tuple[int, ...],
    fenced: int = 0,
    offline: int = 0,
    stopping: tuple[int, ...] = (),
    **reassigned: tuple[int, ...],
) -> Catalog:
    partition = PartitionAssignment(1, 4, (1, 2, 3), isr)._replace(**reassigned)
    brokers = [
        BrokerRegistration(
            node_id,
            (),
            UUID(int=node_id),
            is_fenced=node_id == fenced,
            offline=((TOPIC_ID, 0),) if node_id == offline else (),
            is_stopping=node_id in stopping,
        )
        for node_id in (1, 2, 3)
    ]
    return Catalog("cluster", [Topic("t", TOPIC_ID, (partition,))], brokers=brokers)


@pytest.mark.parametrize(("isr", "catching_up"), [((1, 2), (3,)), ((1,), (2, 3))])
def test_it_waits_whether_it_leads_or_follows(isr: tuple[int, ...], catching_up: tuple[int, ...]) -> None:
    for leaving in isr:
        awaited = awaited_by(image(isr), leaving, frozenset(), lambda _: 2)
        assert awaited == [Awaited("t", 0, isr, catching_up)]


@pytest.mark.parametrize(
    ("catalog", "leaving", "least"),
    [
        (image((1, 2, 3)), 1, 2),  # Enough stay.
        (image((1, 2)), 1, 1),
        (image((1, 2, 3)), 1, 3),  # Nobody can join.
        (image((1, 2)), 3, 2),  # It is not in sync itself.
        (image((1, 2), fenced=3), 1, 2),
        (image((1, 2), offline=3), 1, 2),
        (image((1, 2), adding=(3,)), 1, 1),
        (image((1, 2, 3), stopping=(1, 2)), 1, 2),  # Who began later waits.
        (image((1, 2), stopping=(1, 2, 3)), 1, 2),  # All stop.
    ],
)
def test_it_waits_for_nothing_else(catalog: Catalog, leaving: int, least: int) -> None:
    assert awaited_by(catalog, leaving, frozenset(), lambda _: least) == []


def test_who_began_to_stop_later_waits_until_the_other_is_back() -> None:
    before = frozenset({1})
    for catalog in (
        image((1, 2, 3), stopping=(1, 2)),
        image((2, 3), fenced=1, stopping=(1, 2)),
        image((2, 3), fenced=1, stopping=(2,)),
    ):
        (awaited,) = awaited_by(catalog, 2, before, lambda _: 2)
        assert awaited.catching_up == (1,)
    assert awaited_by(image((1, 2, 3), stopping=(2,)), 2, before, lambda _: 2) == []
