"""Who of a leader's followers is in sync: by the time at which each last had all of the leader's log."""

from tidelog.broker.replicas.followers import Followers

LAG_MS = 100


def test_a_follower_is_late_when_it_did_not_have_all_for_so_long() -> None:
    followers = Followers(50, 0)
    assert followers.late((2, 3), 50, LAG_MS, LAG_MS) == set()
    assert followers.late((2, 3), 50, LAG_MS + 1, LAG_MS) == {2, 3}
    followers.fetched(2, 7, 50, 50, 40)
    followers.fetched(3, 7, 40, 60, 40)
    assert followers.late((2, 3), 60, 101, LAG_MS) == {3}
    followers.fetched(3, 7, 60, 70, 130)  # It had all that the log held at 40.
    assert followers.late((2, 3), 70, 140, LAG_MS) == set()
    assert followers.late((2, 3), 70, 141, LAG_MS) == {2, 3}
    assert followers.late((2,), 50, 9_000, LAG_MS) == set()


def test_a_follower_may_join_with_all_that_is_readable_and_all_that_earlier_epochs_wrote() -> None:
    followers = Followers(50, 0)
    assert not followers.may_join(2, 0)
    followers.fetched(2, 7, 49, 90, 1)
    assert not followers.may_join(2, 0)
    followers.fetched(2, 8, 50, 90, 1)
    assert followers.may_join(2, 50)
    assert not followers.may_join(2, 51)
    assert followers.replica_epoch(2) == 8


def test_who_fetched_when_asked_not_before_the_answer_that_it_follows() -> None:
    followers = Followers(0, 0)
    assert followers.have_asked_since((), 9_000)
    followers.fetched(2, 7, 0, 0, 40)
    assert not followers.have_asked_since((2,), 0)
    followers.fetched(2, 7, 0, 0, 90, 40)
    assert followers.have_asked_since((2,), 40)
    assert not followers.have_asked_since((2,), 41)
    assert not followers.have_asked_since((2, 3), 40)
    followers.fetched(2, 8, 0, 0, 95)  # A session that begins follows no answer.
    assert followers.have_asked_since((2,), 40)
