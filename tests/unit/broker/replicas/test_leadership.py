"""Whether another replica may lead by now: each that may be elected has to have fetched."""

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.leadership import Leadership


def fetch(leadership: Leadership, broker_id: int) -> None:
    leadership.fetched(broker_id, 7, 0, 0, 0, 20, 10)


def test_a_leadership_holds_while_all_that_may_be_elected_fetch() -> None:
    alone = PartitionAssignment(1, 0, (1, 2, 3, 4), (1,))
    assert not Leadership(alone, 0, 0).may_have_ended(10)
    leadership = Leadership(alone._replace(isr=(1, 2), elr=(3,)), 0, 0)
    for fetches, has_ended in ((2, True), (3, False), (4, False)):
        fetch(leadership, fetches)
        assert leadership.may_have_ended(10) == has_ended
    assert leadership.may_have_ended(11)


def test_one_that_is_being_added_may_be_elected() -> None:
    leadership = Leadership(PartitionAssignment(1, 0, (1, 2), (1,)), 0, 0)
    leadership.fetched(2, 7, 0, 0, 0, 20, 10)
    assert leadership.begin_joining(0) == {2: 7}
    assert not leadership.may_have_ended(10)
    assert leadership.may_have_ended(11)
