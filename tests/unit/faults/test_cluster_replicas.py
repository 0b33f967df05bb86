"""Replicas that are the same have no findings; each planted difference has one."""

from faults.checker import Kind
from faults.cluster.replicas import Batches, differences


def log(*offsets: int) -> Batches:
    return [(offset, b"batch at %d" % offset) for offset in offsets]


def test_replicas_with_the_same_batches_have_no_findings_wherever_each_begins() -> None:
    replicas = {"1": log(0, 5, 9), "2": log(5, 9), "3": log(0, 5, 9)}
    assert differences("orders-0", replicas) == []


def test_a_replica_without_a_batch_with_another_one_or_with_other_bytes_is_found() -> None:
    whole = log(0, 5, 9)
    altered = [*log(0, 5), (9, b"batch of 9")]
    for other in (log(0, 5), log(0, 9), log(0, 5, 9, 12), altered):
        found = differences("orders-0", {"1": whole, "2": whole, "3": other})
        assert [finding.kind for finding in found] == [Kind.DIFFERENT], other


def test_an_empty_replica_of_a_log_with_records_is_found() -> None:
    assert len(differences("orders-0", {"1": log(0), "2": [], "3": log(0)})) == 1
