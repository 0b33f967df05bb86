"""The decisions of the authorizer: Kafka's rules, whatever the number of ACLs, and none that outlives its
ACL."""

import gc
import random
import tracemalloc

import pytest

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.security import authorizer as module
from tidelog.broker.security.authorizer import (
    EVERYTHING,
    SUPPORTED_OPERATIONS,
    Authorizer,
    operations,
)
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALICE = "User:alice"


def acl(
    operation: Operation,
    name: str = "t",
    *,
    kind: ResourceType = TOPIC,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = "*",
    deny: bool = False,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return Acl(kind, pattern, name, principal, host, operation, permission)


def may(
    acls: list[Acl],
    operation: Operation,
    name: str = "t",
    *,
    kind: ResourceType = TOPIC,
    principal: str = ALICE,
    host: str = "10.0.0.1",
    **settings: bool,
) -> bool:
    access = Authorizer(acls, ["User:admin"], **settings).access(principal, host)
    answer = access.may(operation, kind, name)
    assert access.may(operation, kind, name) is answer  # The kept decision.
    return answer


def test_without_an_acl_nothing_is_allowed() -> None:
    assert not may([], READ)
    assert not may([acl(READ, "other")], READ)


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    denied = [acl(Operation.ALL, "*", principal="User:*", deny=True)]
    assert may(denied, WRITE, principal="User:admin")
    assert not may(denied, WRITE, principal="User:Admin")


def test_an_acl_counts_for_its_principal_host_resource_and_operation_only() -> None:
    only = [acl(READ, "t", host="10.0.0.1")]
    assert may(only, READ)
    assert not may(only, WRITE)
    assert not may(only, READ, "t2")
    assert not may(only, READ, kind=GROUP)
    assert not may(only, READ, principal="User:bob")
    assert not may(only, READ, host="10.0.0.2")


def test_wildcards_stand_for_all_users_hosts_and_names() -> None:
    assert may([acl(READ, "*")], READ, "whatever")
    assert may([acl(READ, principal="User:*")], READ, principal="Group:x")
    assert not may([acl(READ, "*", prefixed=True)], READ, "whatever"), "a prefix has no wildcards"
    assert may([acl(READ, "*", prefixed=True)], READ, "*starred")


def test_a_prefix_has_all_names_that_begin_with_it() -> None:
    prefix = [acl(READ, "app-", prefixed=True), acl(READ, "x", prefixed=True)]
    assert may(prefix, READ, "app-1")
    assert may(prefix, READ, "app-")
    assert not may(prefix, READ, "app")
    assert not may([acl(READ, "app-")], READ, "app-1"), "a literal is no prefix"


@pytest.mark.parametrize(
    "denial",
    [
        acl(READ, "app-1", deny=True),
        acl(READ, "a", prefixed=True, deny=True),
        acl(READ, "*", deny=True),
        acl(READ, "app-1", principal="User:*", deny=True),
        acl(READ, "app-1", host="10.0.0.1", deny=True),
        acl(Operation.ALL, "app-1", deny=True),
    ],
)
def test_one_denial_wins_over_all_that_allow(denial: Acl) -> None:
    allowing = [acl(READ, "app-1"), acl(Operation.ALL, "*"), acl(READ, "app-", prefixed=True)]
    assert may(allowing, READ, "app-1")
    assert not may([*allowing, denial], READ, "app-1")
    assert not may([denial, *allowing], READ, "app-1")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_read_write_delete_and_alter_imply_describe(operation: Operation) -> None:
    assert may([acl(operation)], DESCRIBE)
    assert not may([acl(operation)], Operation.DESCRIBE_CONFIGS)
    assert not may([acl(operation), acl(DESCRIBE, deny=True)], DESCRIBE)
    assert may([acl(DESCRIBE), acl(operation, deny=True)], DESCRIBE), "a denial implies nothing"


def test_alter_configs_implies_describe_configs_and_nothing_else() -> None:
    assert may([acl(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not may([acl(Operation.ALTER_CONFIGS)], DESCRIBE)
    assert not may([acl(Operation.CREATE)], DESCRIBE)


def test_all_is_every_operation() -> None:
    allowed = Authorizer([acl(Operation.ALL)]).access(ALICE, "h").allowed(TOPIC, "t")
    assert allowed == EVERYTHING
    assert allowed & SUPPORTED_OPERATIONS[TOPIC] == SUPPORTED_OPERATIONS[TOPIC]


def test_everyone_may_use_a_resource_without_any_acl_if_so_configured() -> None:
    others = [acl(READ, principal="User:bob")]
    assert may(others, WRITE, "free", allow_if_no_acl=True)
    assert not may(others, READ, "t", allow_if_no_acl=True), "bob's ACL closes it for the others"
    assert not may([acl(READ, "*", principal="User:bob")], READ, "free", allow_if_no_acl=True)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(WRITE, "a")], True),
        ([acl(Operation.ALL, "a", prefixed=True)], True),
        ([acl(READ, "a")], False),
        ([acl(WRITE, "a", principal="User:bob")], False),
        ([acl(WRITE, "a", host="10.0.0.2")], False),
        ([acl(WRITE, "a", kind=GROUP)], False),
        ([acl(WRITE, "a"), acl(WRITE, "a", deny=True)], False),
        ([acl(WRITE, "abc"), acl(WRITE, "ab", prefixed=True, deny=True)], False),
        ([acl(WRITE, "abc", prefixed=True), acl(WRITE, "ab", prefixed=True, deny=True)], False),
        ([acl(WRITE, "ab", prefixed=True), acl(WRITE, "abc", prefixed=True, deny=True)], True),
        ([acl(WRITE, "ab", prefixed=True), acl(WRITE, "ab", deny=True)], True),
        ([acl(WRITE, "*"), acl(WRITE, "a", deny=True)], True),
        ([acl(WRITE, "a"), acl(WRITE, "*", deny=True)], False),
        ([acl(WRITE, "a"), acl(Operation.ALL, "*", principal="User:*", deny=True)], False),
    ],
)
def test_write_on_any_topic_is_enough_for_an_idempotent_producer(acls: list[Acl], expected: bool) -> None:
    """KIP-679. No denial of a part matters while a part is left."""
    access = Authorizer(acls).access(ALICE, "10.0.0.1")
    assert access.may_with_any(WRITE, TOPIC) is expected
    assert access.may_with_any(WRITE, TOPIC) is expected


def test_each_change_of_the_acls_drops_what_was_decided_before() -> None:
    authorizer = Authorizer()
    access = authorizer.access(ALICE, "h")
    assert not access.may(READ, TOPIC, "t")
    assert not access.may_with_any(WRITE, TOPIC)
    both = [acl(READ), acl(WRITE)]
    authorizer.change(both, ())
    assert access.may(READ, TOPIC, "t")
    assert access.may_with_any(WRITE, TOPIC)
    authorizer.change((), both)
    assert not access.may(READ, TOPIC, "t")
    assert not access.may_with_any(WRITE, TOPIC)


def test_connections_of_one_principal_and_host_share_their_decisions() -> None:
    authorizer = Authorizer()
    access = authorizer.access(ALICE, "h")
    assert authorizer.access(ALICE, "h") is access
    assert authorizer.access(ALICE, "h2") is not access


def test_decisions_are_bounded_in_number_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DECISIONS", 100)
    authorizer = Authorizer([acl(READ, "t", prefixed=True)])
    access = authorizer.access(ALICE, "h")
    for number in range(1_000):
        assert access.may(READ, TOPIC, f"t{number}")
        assert len(access.topics) <= authorizer.decisions <= 100
    assert access.may(READ, TOPIC, "t" * 30_000)
    assert all(len(name) < 250 for name in access.topics)


def test_an_index_of_acls_leaves_nothing_behind_when_they_are_gone() -> None:
    rng = random.Random(5)
    authorizer = Authorizer()
    acls = list({
        acl(
            rng.choice(list(Operation)[1:]),
            "abcdefgh"[: rng.randint(1, 8)],
            prefixed=rng.random() < 0.5,
            principal=f"User:{rng.randint(0, 5)}",
            host=rng.choice(["*", "h"]),
            deny=rng.random() < 0.5,
        )
        for _ in range(500)
    })  # fmt: skip
    authorizer.change(acls, ())
    rng.shuffle(acls)
    half = len(acls) // 2
    authorizer.change((), acls[:half])
    fresh = Authorizer(acls[half:])
    for number in range(6):
        for host in ("h", "g"):
            for length in range(1, 9):
                name = "abcdefgh"[:length]
                now = authorizer.access(f"User:{number}", host).allowed(TOPIC, name)
                assert now == fresh.access(f"User:{number}", host).allowed(TOPIC, name)
    authorizer.change((), acls[half:])
    patterns = authorizer._patterns[TOPIC]
    assert not patterns.literal
    assert not patterns.prefixed
    assert not patterns.named
    assert not patterns._lengths


def test_a_decision_among_ten_thousand_acls_looks_at_a_few() -> None:
    """Counted, not timed: the rules that a name matches, of 10,000 prefixes and 10,000 literals."""
    acls = [acl(READ, f"team-{number:05d}", prefixed=number % 2 == 0) for number in range(20_000)]
    authorizer = Authorizer(acls)
    patterns = authorizer._patterns[TOPIC]
    assert len(patterns._lengths) == 1
    assert len(list(patterns.matching("team-00004-events"))) == 1
    assert authorizer.access(ALICE, "h").may(READ, TOPIC, "team-00004-events")


def test_an_access_lives_as_long_as_its_connections() -> None:
    authorizer = Authorizer()
    access = authorizer.access(ALICE, "h")
    assert len(authorizer._accesses) == 1
    del access
    gc.collect()
    assert len(authorizer._accesses) == 0


def test_ten_thousand_acls_take_a_few_megabytes() -> None:
    acls = [acl(READ, f"topic-{number}", principal=f"User:u{number}") for number in range(10_000)]
    tracemalloc.start()
    authorizer = Authorizer(acls)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert authorizer.access("User:u7", "h").may(READ, TOPIC, "topic-7")
    assert held < 15_000_000


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("*", "*"),
        ("client.example", "client.example"),
    ],
)
def test_an_address_has_one_form(host: str, expected: str) -> None:
    assert canonical_host(host) == expected


def test_a_set_of_operations_is_the_bit_field_of_kip_430() -> None:
    assert operations(READ, DESCRIBE) == 0b1_0000_1000
    assert SUPPORTED_OPERATIONS[CLUSTER] == sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
    assert SUPPORTED_OPERATIONS[TOPIC] == sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))
    assert SUPPORTED_OPERATIONS[GROUP] == sum(1 << each for each in (3, 6, 8, 10, 11))
