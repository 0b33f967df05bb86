"""The brokers of new partitions, and the codes with which a bad wish for them is refused."""

import pytest

from tidelog.broker.cluster.placement import (
    assign,
    assign_manually,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import ELEMENTS_PER_STEP


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_the_replicas_of_a_partition_are_in_as_many_racks_as_there_are() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    for assigned in assign(100, [1, 2, 3, 4, 5], 3, racks=racks):
        assert {racks[each] for each in assigned.replicas} == {"a", "b", "c"}
    for assigned in assign(100, [1, 2, 3, 4, 5, 6], 5, racks=racks):
        assert len(set(assigned.replicas)) == 5


def test_a_manual_assignment_of_many_partitions_is_checked_in_steps() -> None:
    steps = assign_manually({index: [1, 2] for index in range(10 * ELEMENTS_PER_STEP)}, [1, 2])
    assert sum(1 for _ in steps) == 10
