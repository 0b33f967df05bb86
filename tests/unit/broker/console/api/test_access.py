"""Who may do what and why: the command that is shown as a remedy changes the decision."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker.console.asking import answer, stand_in
from tests.unit.broker.security.test_authorizer import ALICE, CLUSTER, READ, TOPIC, WRITE, acl
from tidelog.broker.console.api import access
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation, ResourceType
from tidelog.protocol.scram import ScramMechanism, credential_of

HERE = "10.0.0.1"


def console(*made: Acl, has_authorizer: bool = True) -> Any:
    authorizer = Authorizer(made) if has_authorizer else None
    return stand_in({"acls": SimpleNamespace(all=made, authorizer=authorizer)})


async def why(
    *made: Acl,
    operation: Operation = READ,
    kind: ResourceType = TOPIC,
    name: str = "orders",
    host: str = HERE,
) -> Any:
    named = {"operation": operation.name, "resource_type": kind.name, "resource_name": name}
    return await answer(access.why, console(*made), principal=ALICE, host=host, **named)


async def who(*made: Acl, limit: int = 10) -> Any:
    return await answer(access.who, console(*made), host=HERE, resource_name="orders", limit=limit)


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
async def test_a_refusal_has_the_command_that_ends_it(acls: list[Any], asked: Any, remedy: str) -> None:
    found = await why(*acls, operation=asked[0], kind=asked[1], name=asked[2])
    assert found["remedy"] == remedy
    assert found["is_allowed"] is not bool(remedy)


async def test_the_acl_that_decides_is_shown() -> None:
    denial = acl(READ, "orders", deny=True)
    assert (await why(denial))["acl"] == {
        "principal": ALICE,
        "host": "*",
        "permission": "DENY",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "LITERAL",
    }


async def test_an_address_counts_however_it_is_written() -> None:
    allowing = acl(READ, "orders", host="2001:db8::1")
    assert (await why(allowing, host="2001:DB8:0::1"))["is_allowed"]


async def test_who_lists_those_whom_an_acl_allows_something_with_all_that_they_may() -> None:
    made = [
        acl(READ, "orders", principal="User:bob"),
        acl(WRITE, "ord", prefixed=True, principal="User:bob"),
        acl(Operation.ALL, "*", principal=ALICE),
        acl(READ, "orders", principal="User:denied", deny=True),
        acl(READ, "payments", principal="User:other"),
        acl(READ, "orders", principal="User:elsewhere", host="10.9.9.9"),
    ]
    found = await who(*made)
    assert {each["principal"]: set(each["operations"]) for each in found["rows"]} == {
        ALICE: {
            *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
        },
        "User:bob": {"READ", "WRITE", "DESCRIBE"},
    }
    assert found["is_complete"]
    few = await who(*made, limit=1)
    assert (few["is_complete"], len(few["rows"])) == (False, 1)


async def test_who_looks_at_a_bounded_number_of_principals() -> None:
    made = [acl(READ, "orders", principal=f"User:{number}", deny=True) for number in range(1_001)]
    assert await who(*made) == {"rows": [], "is_complete": False}
    assert await who(*made[1:]) == {"rows": [], "is_complete": True}


async def test_users_are_found_by_a_part_of_their_names_and_show_nothing_secret() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = credential_of(mechanism, b"k" * 32, b"salt", 4096)
    held: Any = {name: {mechanism: credential} for name in ("zoe", "alice", "alina")}
    users, config = (
        SimpleNamespace(names=lambda: list(held), get=held.get),
        {"super_user_names": ["User:zoe"]},
    )
    here = stand_in({"users": users, "config": SimpleNamespace(**config)})
    found = await answer(access.users, here, search="AL", offset=1, limit=5)
    assert found["rows"] == [{"name": "alina", "mechanisms": {"SCRAM-SHA-256": 4096}, "is_super": False}]
    assert (found["total"], found["super_users"]) == (2, ["User:zoe"])
    assert (await answer(access.users, here, search="zoe"))["rows"][0]["is_super"]


async def test_acls_are_listed_by_pages() -> None:
    made = [acl(READ, f"t{number}") for number in range(5)]
    found = await answer(access.acls, console(*made, has_authorizer=False), offset=3, limit=10)
    assert [each["resource_name"] for each in found["rows"]] == ["t3", "t4"]
    assert (found["total"], found["is_enabled"]) == (5, False)
