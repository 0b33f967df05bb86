"""The decisions of the authorizer: Kafka's rules (`authorizer.txt`), whatever the number of ACLs."""

import gc
import random
import tracemalloc
from pathlib import Path

import pytest

from tests.scripts import Case, cases
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


class Script:
    """The commands. Alice asks about topics, from 10.0.0.1. Words: `user=`, `host=`, `kind=`, `prefixed`."""

    def __init__(self) -> None:
        self.authorizer = Authorizer((), ["User:admin"])
        self.acls: list[Acl] = []

    def open_to_all(self) -> None:
        """What has no ACL is open to everybody."""
        self.authorizer = Authorizer((), ["User:admin"], allow_if_no_acl=True)

    def allow(self, operation: str, name: str, *words: str, deny: bool = False) -> None:
        options = _options(words)
        self.acls.append(
            acl(
                Operation[operation],
                name,
                kind=ResourceType[options.get("kind", "TOPIC")],
                prefixed="prefixed" in words,
                principal=f"User:{options.get('user', 'alice')}",
                host=options.get("host", "*"),
                deny=deny,
            )
        )
        self.authorizer.change(self.acls[-1:], ())

    def deny(self, operation: str, name: str, *words: str) -> None:
        self.allow(operation, name, *words, deny=True)

    def drop(self) -> None:
        """The last ACL."""
        self.authorizer.change((), [self.acls.pop()])

    def drop_all(self) -> None:
        while self.acls:
            self.drop()

    def may(self, operation: str, name: str, *words: str) -> str:
        """The name `any`: with any topic at all (KIP-679)."""
        options = _options(words)
        access = self.authorizer.access(
            f"User:{options.get('user', 'alice')}", options.get("host", "10.0.0.1")
        )
        asked, kind = Operation[operation], ResourceType[options.get("kind", "TOPIC")]
        first, kept = (
            access.may_with_any(asked, kind) if name == "any" else access.may(asked, kind, name)
            for _ in range(2)
        )
        assert first is kept
        return "yes" if first else "no"


def _options(words: tuple[str, ...]) -> dict[str, str]:
    return dict(word.split("=") for word in words if "=" in word)


@cases(Path(__file__).parent / "authorizer.txt")
async def test_authorizer(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


def test_all_is_every_operation() -> None:
    allowed = Authorizer([acl(Operation.ALL)]).access(ALICE, "h").allowed(TOPIC, "t")
    assert allowed == EVERYTHING
    assert allowed & SUPPORTED_OPERATIONS[TOPIC] == SUPPORTED_OPERATIONS[TOPIC]


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
