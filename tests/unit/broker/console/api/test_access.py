"""Who may do what and why: the command that is shown as a remedy changes the decision."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker.security.test_authorizer import ALICE, CLUSTER, READ, TOPIC, WRITE, acl
from tidelog.broker.console.api.access import acl_row, acls_of, users_of, who, why
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acls import CLUSTER_NAME, AclFilter, Operation
from tidelog.protocol.scram import ScramMechanism, credential_of
from tidelog.protocol.steps import finish

HERE = "10.0.0.1"


@pytest.mark.parametrize(
    ("acls", "asked", "remedy"),
    [
        ([], (READ, TOPIC, "orders"), "tidelog acl add User:alice --operation Read --topic orders"),
        (
            [acl(Operation.ALL, "ord", prefixed=True, host=HERE, deny=True)],
            (READ, TOPIC, "orders"),
            f"tidelog acl delete User:alice --operation All --topic ord --prefixed --host {HERE} --deny",
        ),
        (
            [],
            (Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
            "tidelog acl add User:alice --operation AlterConfigs --cluster",
        ),
        ([], (READ, TOPIC, "a b'c"), """tidelog acl add User:alice --operation Read --topic 'a b'"'"'c'"""),
        ([acl(READ, "orders")], (READ, TOPIC, "orders"), ""),
    ],
)
def test_a_refusal_has_the_command_that_ends_it(acls: list[Any], asked: Any, remedy: str) -> None:
    found = why(Authorizer(acls), ALICE, HERE, *asked)
    assert found["remedy"] == remedy
    assert found["is_allowed"] is not bool(remedy)


def test_the_acl_that_decides_is_shown() -> None:
    denial = acl(READ, "orders", deny=True)
    assert why(Authorizer([denial]), ALICE, HERE, READ, TOPIC, "orders")["acl"] == acl_row(denial)


def test_an_address_counts_however_it_is_written() -> None:
    allowing = acl(READ, "orders", host="2001:db8::1")
    assert why(Authorizer([allowing]), ALICE, "2001:DB8:0::1", READ, TOPIC, "orders")["is_allowed"]


def test_who_lists_those_whom_an_acl_allows_something_with_all_that_they_may() -> None:
    authorizer = Authorizer(
        [
            acl(READ, "orders", principal="User:bob"),
            acl(WRITE, "ord", prefixed=True, principal="User:bob"),
            acl(Operation.ALL, "*", principal=ALICE),
            acl(READ, "orders", principal="User:denied", deny=True),
            acl(READ, "payments", principal="User:other"),
            acl(READ, "orders", principal="User:elsewhere", host="10.9.9.9"),
        ]
    )
    found = finish(who(authorizer, HERE, TOPIC, "orders", 10))
    assert {each["principal"]: set(each["operations"]) for each in found["rows"]} == {
        ALICE: {
            *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
        },
        "User:bob": {"READ", "WRITE", "DESCRIBE"},
    }
    assert found["is_complete"]
    few = finish(who(authorizer, HERE, TOPIC, "orders", 1))
    assert (few["is_complete"], len(few["rows"])) == (False, 1)


def test_who_looks_at_a_bounded_number_of_principals() -> None:
    acls = [acl(READ, "orders", principal=f"User:{number}", deny=True) for number in range(1_001)]
    assert finish(who(Authorizer(acls), HERE, TOPIC, "orders", 10)) == {"rows": [], "is_complete": False}
    assert finish(who(Authorizer(acls[1:]), HERE, TOPIC, "orders", 10)) == {"rows": [], "is_complete": True}


def test_users_are_found_by_a_part_of_their_names_and_show_nothing_secret() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = credential_of(mechanism, b"k" * 32, b"salt", 4096)
    held: Any = {name: {mechanism: credential} for name in ("zoe", "alice", "alina")}
    users: Any = SimpleNamespace(names=lambda: list(held), get=held.get)
    found = finish(users_of(users, ["User:zoe"], "AL", 1, 5))
    assert found["rows"] == [{"name": "alina", "mechanisms": {"SCRAM-SHA-256": 4096}, "is_super": False}]
    assert (found["total"], found["super_users"]) == (2, ["User:zoe"])
    assert finish(users_of(users, ["User:zoe"], "zoe", 0, 5))["rows"][0]["is_super"]


def test_acls_are_listed_by_pages() -> None:
    made = [acl(READ, f"t{number}") for number in range(5)]
    acls: Any = SimpleNamespace(all=made, authorizer=None)
    found = finish(acls_of(acls, AclFilter(), 3, 10))
    assert [each["resource_name"] for each in found["rows"]] == ["t3", "t4"]
    assert (found["total"], found["is_enabled"]) == (5, False)
