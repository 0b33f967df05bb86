"""What is moved of throttled replicas keeps to the rate, in the long run."""

from tidelog.broker.replicas.replication_quota import UNLIMITED, ReplicationQuota


def test_a_rate_is_kept_whatever_one_answer_has() -> None:
    now = 100.0
    quota = ReplicationQuota(1, lambda: now)
    quota.set_rate(1000)
    moved = 0
    for _ in range(1000):
        quota.set_rate(1000)  # Other settings changed.
        if not quota.delay_seconds():
            quota.moved(700)
            moved += 700
        now += 0.01
    assert 10_000 <= moved <= 10_000 + 700
    now += quota.delay_seconds()
    assert quota.delay_seconds(1000) == 0
    assert quota.delay_seconds(1500) == 0.5
    quota.moved(5000)
    assert quota.delay_seconds() > 0
    quota.set_rate(UNLIMITED)
    assert quota.delay_seconds() == 0
    assert quota.moved_bytes == moved + 5000


def test_it_holds_for_the_replicas_of_this_broker_that_the_topic_names() -> None:
    quota = ReplicationQuota(1, lambda: 0.0)
    assert not quota.holds_for(("*",), 0)
    quota.set_rate(1000)
    assert quota.holds_for(("*",), 0)
    assert quota.holds_for(("7:1", "0:2"), 7)
    assert not quota.holds_for(("7:1", "0:2"), 0)
    assert not quota.holds_for((), 0)
