"""What a cluster costs is told by its parts; the cost of all of them is what is compared."""

import pytest

from bench.loads.process import Outcome
from bench.scenarios.replicas import REPLICAS
from bench.targets.cluster import ETCD, FOLLOWERS, LEADER


def test_the_processor_time_of_all_parts_counts_and_that_of_followers_is_of_each() -> None:
    numbers = {"records": 900, "acknowledged": 1000, "seconds": 1.0, "p99_ms": 2.0}
    done = Outcome(numbers, {LEADER: 0.003, FOLLOWERS: 0.004, ETCD: 0.0005}, 0.0, 0.0)
    values = {measure.name: measure.of(done) for measure in REPLICAS.cases[0].measures}
    assert values == {
        "rate": 900,
        "server CPU": pytest.approx(7.5),
        "CPU of the leader": pytest.approx(3.0),
        "CPU of a follower": pytest.approx(2.0),
        "CPU of etcd": pytest.approx(0.5),
        "p99": 2.0,
    }
