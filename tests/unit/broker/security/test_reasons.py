"""Why an operation is allowed or refused: the ACL that is named is the one that decides."""

from itertools import combinations, product

import pytest

from tests.unit.broker.security.test_authorizer import ALICE, CLUSTER, DESCRIBE, READ, TOPIC, WRITE, acl
from tidelog.broker.security.authorizer import Authorizer
from tidelog.broker.security.reasons import Reason, reason
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation

HERE = "10.0.0.1"


def why(acls: list[Acl], operation: Operation = READ, principal: str = ALICE, **settings: bool) -> Reason:
    return reason(Authorizer(acls, ["User:admin"], **settings), principal, HERE, operation, TOPIC, "orders")


ACLS = [
    acl(READ, "orders"),
    acl(WRITE, "ord", prefixed=True),
    acl(Operation.ALL, "*", principal="User:*"),
    acl(READ, "orders", principal="User:bob"),
    acl(READ, "orders", host=HERE, deny=True),
    acl(Operation.ALL, "*", principal="User:*", deny=True),
    acl(READ, "payments"),
]


@pytest.mark.parametrize("count", range(4))
def test_the_reason_is_that_of_the_decision_and_without_its_acl_the_decision_has_another(count: int) -> None:
    asked = product((READ, WRITE, DESCRIBE), (ALICE, "User:bob", "User:carol"))
    for acls, (operation, principal) in product(map(list, combinations(ACLS, count)), asked):
        given = why(acls, operation, principal)
        access = Authorizer(acls).access(principal, HERE)
        assert given.is_allowed == access.may(operation, TOPIC, "orders")
        if given.acl is None:
            assert not given.is_allowed
            assert not any(
                each in access.acls_on(TOPIC, "orders") for each in acls if each.operation == operation
            )
        else:
            assert given.acl in acls
            assert why([each for each in acls if each != given.acl], operation, principal).acl != given.acl


def test_a_denial_is_named_before_what_allows() -> None:
    denial = acl(READ, "ord", prefixed=True, deny=True)
    assert why([acl(READ, "orders"), denial]) == Reason(False, "An ACL denies READ.", denial)


def test_an_operation_that_another_one_includes_is_explained_by_that() -> None:
    allowing = acl(WRITE, "orders")
    assert why([allowing], DESCRIBE) == Reason(
        True, "An ACL allows WRITE, which includes DESCRIBE.", allowing
    )


@pytest.mark.parametrize(
    ("acls", "text"),
    [
        (
            [],
            "No ACL is about topic orders, and allow.everyone.if.no.acl.found is false.",
        ),
        (
            [acl(READ, "orders", principal="User:bob")],
            "There are ACLs on topic orders, but none names User:alice or User:* from 10.0.0.1.",
        ),
        (
            [acl(WRITE, "orders")],
            "None of the ACLs that User:alice has on topic orders from 10.0.0.1 allows READ.",
        ),
    ],
)
def test_without_a_deciding_acl_the_reason_says_what_is_missing(acls: list[Acl], text: str) -> None:
    assert why(acls) == Reason(False, text)


def test_without_acls_or_authorizer_and_for_super_users_the_setting_is_named() -> None:
    assert "allow.everyone.if.no.acl.found is true" in why([], allow_if_no_acl=True).text
    assert why([], principal="User:admin") == Reason(
        True, "User:admin is one of super.users, who may do everything."
    )
    assert reason(None, ALICE, HERE, WRITE, CLUSTER, CLUSTER_NAME).is_allowed
