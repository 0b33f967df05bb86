"""The steps of one member from what it owns to its target."""

from uuid import UUID

import pytest

from tidelog.broker.coordinator.consumer_groups.group import Assignment, Current, MemberState
from tidelog.broker.coordinator.consumer_groups.reconciliation import reconciled
from tidelog.protocol.errors import ApiError, ErrorCode

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def of(topic: UUID, *partitions: int) -> Assignment:
    return {topic: frozenset(partitions)}


@pytest.mark.parametrize(
    ("before", "target", "owned", "elsewhere", "after"),
    [
        # All of it is free.
        (Current(1), of(T, 1, 2), {}, {}, Current(5, 1, STABLE, of(T, 1, 2))),
        # Nothing changes but the epoch.
        (Current(1, 0, STABLE, of(T, 1)), of(T, 1), None, {}, Current(5, 1, STABLE, of(T, 1))),
        # First it revokes, and its epoch stays.
        (
            Current(1, 0, STABLE, of(T, 1, 2)),
            of(T, 2, 3),
            of(T, 1, 2),
            {},
            Current(1, 1, UNREVOKED, of(T, 2), of(T, 1)),
        ),
        # It says nothing of what it owns, so it may still own it.
        (
            Current(1, 0, UNREVOKED, of(T, 2), of(T, 1)),
            of(T, 2),
            None,
            {},
            Current(1, 0, UNREVOKED, of(T, 2), of(T, 1)),
        ),
        # It has revoked.
        (
            Current(1, 1, UNREVOKED, of(T, 2), of(T, 1)),
            of(T, 2, 3),
            of(T, 2),
            {},
            Current(5, 1, STABLE, of(T, 2, 3)),
        ),
        # The target changed while it revoked: it revokes more, and its epoch stays,
        # so that a repeated heartbeat or commit with it is valid.
        (
            Current(1, 1, UNREVOKED, of(T, 2), of(T, 1)),
            of(U, 1),
            of(T, 2),
            {},
            Current(1, 1, UNREVOKED, {}, of(T, 2)),
        ),
        # Others have not released what it is to get; what is free it gets.
        (Current(1), of(T, 1, 2), {}, of(T, 2), Current(5, 1, UNRELEASED, of(T, 1))),
        (Current(1), of(T, 1), {}, of(T, 1), Current(5, 1, UNRELEASED, {})),
        # Now they have.
        (Current(5, 1, UNRELEASED, of(T, 1)), of(T, 1, 2), None, {}, Current(5, 5, STABLE, of(T, 1, 2))),
        # It owns nothing of what it was to revoke.
        (Current(1, 0, STABLE, of(T, 1)), {}, {}, {}, Current(5, 1, STABLE, {})),
    ],
)
def test_a_member_revokes_then_gets_the_epoch_and_then_what_is_free(
    before: Current, target: Assignment, owned: Assignment | None, elsewhere: Assignment, after: Current
) -> None:
    assert reconciled(before, 5, target, owned, lambda topic, part: part in elsewhere.get(topic, ())) == after


def test_a_member_that_is_where_it_should_be_stays_as_it_is() -> None:
    there = Current(5, 4, STABLE, of(T, 1))
    assert reconciled(there, 5, of(T, 9), {}, lambda *_: False) is there


@pytest.mark.parametrize("owned", [None, of(T, 1)])
def test_a_member_in_an_unknown_state_must_join_again_without_partitions(owned: Assignment | None) -> None:
    strange = Current(4, 3, MemberState.UNKNOWN, of(T, 1))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.FENCED_MEMBER_EPOCH):
        reconciled(strange, 5, of(T, 1), owned, lambda *_: False)
    assert reconciled(strange, 5, of(T, 1), {}, lambda *_: False).state is STABLE
