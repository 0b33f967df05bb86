"""Which operations a principal may do with a resource: the ACLs, indexed, and the decisions that follow.

Owns the rules of Kafka's StandardAuthorizer. An ACL counts where its pattern has the name of the resource,
its principal is the asking one or User:*, and its host is the asking one or * (both as `canonical_host` has
it). Of these ACLs one that denies wins over all that allow. Without any ACL for a resource, of whatever
principal, `allow_if_no_acl` decides. An allowed READ, WRITE, DELETE or ALTER allows DESCRIBE too, and
ALTER_CONFIGS allows DESCRIBE_CONFIGS; a denied one denies only itself. A super user may do all.

A set of operations is an int with the bit `1 << operation` for each, as KIP-430 sends it.

Invariants: pure; a decision takes one look-up for each length that prefixes have, however many ACLs there
are; at most `MAX_DECISIONS` decisions are kept, for names of at most `MAX_KEPT_NAME_LENGTH` characters; each
change of the ACLs drops all of them, so no decision outlives its ACL.

Source: Kafka's StandardAuthorizerData, AclEntry and Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakValueDictionary, proxy

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.protocol.acls import EVERY_USER, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType

MAX_DECISIONS: Final = 50_000
"""About 15 MB. If more are asked for, all are dropped and made again."""
MAX_KEPT_NAME_LENGTH: Final = 249
"""The longest name of a topic. Decisions about longer names are not kept: a peer may send 32,767
characters."""
_ANYWHERE: Final = WILDCARD


def operations(*members: Operation) -> int:
    """The set of these operations."""
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


_ALL_BIT: Final = operations(Operation.ALL)
EVERYTHING: Final = operations(*(each for each in Operation if each not in (Operation.ANY, Operation.ALL)))
"""All operations but ANY and ALL, which no request has."""
_IMPLY_DESCRIBE: Final = operations(Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_DESCRIBE: Final = operations(Operation.DESCRIBE)
_ALTER_CONFIGS: Final = operations(Operation.ALTER_CONFIGS)
_DESCRIBE_CONFIGS: Final = operations(Operation.DESCRIBE_CONFIGS)

SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, int]] = {
    ResourceType.TOPIC: operations(
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: operations(
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: operations(
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: operations(
        Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT
    ),
    ResourceType.USER: operations(Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""Resource type -> the operations that exist for it. `include_authorized_operations` answers only these."""


class _Rule:
    """What the ACLs of one pattern say to one principal and host: sets of operations."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0


_Rules = dict[tuple[str, str], _Rule]
"""(principal, host) -> rule."""


class _Patterns:
    """The ACLs of one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.named: dict[tuple[str, str], dict[tuple[PatternType, str], _Rule]] = {}
        """(principal, host) -> its rules by pattern."""
        self._lengths: Counter[int] = Counter()
        """How many prefixes have each length."""

    def add(self, acl: Acl) -> None:
        by_name = self._of(acl)
        rules = by_name.get(acl.resource_name)
        if rules is None:
            rules = by_name[acl.resource_name] = {}
            if by_name is self.prefixed:
                self._lengths[len(acl.resource_name)] += 1
        who = (acl.principal, acl.host)
        rule = rules.get(who)
        if rule is None:
            rule = rules[who] = _Rule()
            self.named.setdefault(who, {})[acl.pattern_type, acl.resource_name] = rule
        if acl.permission == Permission.ALLOW:
            rule.allowed |= 1 << acl.operation
        else:
            rule.denied |= 1 << acl.operation

    def remove(self, acl: Acl) -> None:
        by_name = self._of(acl)
        rules = by_name[acl.resource_name]
        who = (acl.principal, acl.host)
        rule = rules[who]
        if acl.permission == Permission.ALLOW:
            rule.allowed &= ~(1 << acl.operation)
        else:
            rule.denied &= ~(1 << acl.operation)
        if rule.allowed or rule.denied:
            return
        del rules[who], self.named[who][acl.pattern_type, acl.resource_name]
        if not self.named[who]:
            del self.named[who]
        if not rules:
            del by_name[acl.resource_name]
            if by_name is self.prefixed:
                self._forget_length(len(acl.resource_name))

    def _of(self, acl: Acl) -> dict[str, _Rules]:
        return self.literal if acl.pattern_type == PatternType.LITERAL else self.prefixed

    def _forget_length(self, length: int) -> None:
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def matching(self, name: str) -> Iterator[tuple[PatternType, str, _Rules]]:
        """All patterns that have this name, with their rules."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            if literal in self.literal:
                yield PatternType.LITERAL, literal, self.literal[literal]
        for length in self._lengths:
            prefix = name[:length]
            if length <= len(name) and (rules := self.prefixed.get(prefix)) is not None:
                yield PatternType.PREFIXED, prefix, rules


class _Decisions(dict[str, int]):
    """Name of a resource -> the operations that are allowed with it; found at the first look-up."""

    __slots__ = ("_access", "_resource_type")

    def __init__(self, access: Access, resource_type: ResourceType) -> None:
        super().__init__()
        self._access: Access = proxy(access)  # It keeps this.
        self._resource_type = resource_type

    def __missing__(self, name: str) -> int:
        allowed = self._access.find(self._resource_type, name)
        if len(name) <= MAX_KEPT_NAME_LENGTH and self._access.may_keep():
            self[name] = allowed
        return allowed


class Access:
    """What one principal may do from one host. `topics[name] & operations(Operation.READ)` and so on.

    Keep it as long as a connection has this principal; its decisions follow the ACLs.
    """

    __slots__ = ("__weakref__", "_any", "_asks_as", "_authorizer", "_by_type", "is_super", "topics")

    def __init__(self, authorizer: Authorizer, principal: str, host: str, *, is_super: bool) -> None:
        host = canonical_host(host)
        self._any: dict[tuple[Operation, ResourceType], bool] = {}
        self._authorizer = authorizer
        self._asks_as = [(who, where) for who in (principal, EVERY_USER) for where in (host, _ANYWHERE)]
        self.is_super = is_super
        # By the number of the type: to hash a member of an enumeration takes longer than all the rest.
        self._by_type = tuple(_Decisions(self, each) for each in (ResourceType.ANY, *ResourceType))
        self.topics = self._by_type[ResourceType.TOPIC]

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed with a resource."""
        return self._by_type[resource_type][name]

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return bool(self._by_type[resource_type][name] >> operation & 1)

    def may_with_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed with at least one resource that could exist (KIP-679)."""
        known = self._any.get((operation, resource_type))
        if known is None:
            # As in Kafka, a name that no ACL has shows super users, and `allow_if_no_acl`.
            known = self.may(operation, resource_type, "hardcode") or self._authorizer.allows_any(
                operation, resource_type, self._asks_as
            )
            self._any[operation, resource_type] = known
        return known

    def find(self, resource_type: ResourceType, name: str) -> int:
        """As `allowed`, from the ACLs themselves."""
        if self.is_super:
            return EVERYTHING
        return self._authorizer.decide(resource_type, name, self._asks_as)

    def acls_on(self, resource_type: ResourceType, name: str) -> list[Acl]:
        """The ACLs that count for this principal and host with a resource: what `find` decides by."""
        return self._authorizer.acls_on(resource_type, name, self._asks_as)

    def may_keep(self) -> bool:
        """Whether one more decision may be kept. If there are too many, all are dropped."""
        return self._authorizer.count_decision()

    def forget(self) -> None:
        self._any.clear()
        for decisions in self._by_type:
            decisions.clear()


class Authorizer:
    """All ACLs of a cluster, and the decisions of all connections."""

    def __init__(
        self, acls: Iterable[Acl] = (), super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        """`super_users` are principals such as User:admin."""
        self._super_users = frozenset(super_users)
        self._default = EVERYTHING if allow_if_no_acl else 0
        self._patterns = {each: _Patterns() for each in ResourceType}
        self._accesses: WeakValueDictionary[tuple[str, str], Access] = WeakValueDictionary()
        self.decisions = 0
        """How many are kept now, at most."""
        self.change(acls, ())

    def change(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Take over ACLs that are new and forget those that are gone."""
        for acl in removed:
            self._patterns[acl.resource_type].remove(acl)
        for acl in added:
            self._patterns[acl.resource_type].add(acl)
        self._forget()

    def access(self, principal: str, host: str) -> Access:
        """The access of a principal (Type:name) from a host; connections of the same two share it."""
        access = self._accesses.get((principal, host))
        if access is None:
            is_super = principal in self._super_users
            access = self._accesses[principal, host] = Access(self, principal, host, is_super=is_super)
        return access

    def decide(self, resource_type: ResourceType, name: str, asks_as: Iterable[tuple[str, str]]) -> int:
        """The operations that the ACLs allow; `asks_as` are the principals and hosts that count."""
        has_acl = False
        allowed = denied = 0
        asks_as = tuple(asks_as)
        for _, _, rules in self._patterns[resource_type].matching(name):
            has_acl = True
            for who in asks_as:
                rule = rules.get(who)
                if rule is not None:
                    allowed |= rule.allowed
                    denied |= rule.denied
        if not has_acl:
            return self._default
        if denied & _ALL_BIT:
            return 0
        return _with_implied(allowed) & ~denied

    def acls_on(
        self, resource_type: ResourceType, name: str, asks_as: Iterable[tuple[str, str]]
    ) -> list[Acl]:
        """The ACLs of which `decide` makes its answer."""
        asks_as = tuple(asks_as)
        return [
            Acl(resource_type, pattern_type, pattern, *who, operation, permission)
            for pattern_type, pattern, rules in self._patterns[resource_type].matching(name)
            for who in asks_as
            if (rule := rules.get(who)) is not None
            for permission, bits in ((Permission.DENY, rule.denied), (Permission.ALLOW, rule.allowed))
            for operation in Operation
            if bits >> operation & 1
        ]

    def principals_on(self, resource_type: ResourceType, name: str) -> Iterator[str]:
        """The principals that an ACL on a resource names, some of them more than once."""
        for _, _, rules in self._patterns[resource_type].matching(name):
            for principal, _ in rules:
                yield principal

    def allows_any(
        self, operation: Operation, resource_type: ResourceType, asks_as: Iterable[tuple[str, str]]
    ) -> bool:
        """Whether an ACL allows the operation with some resource, and none denies it for all of these."""
        wanted = 1 << operation | _ALL_BIT
        named = self._patterns[resource_type].named
        rules = [held for who in asks_as for held in named.get(who, {}).items()]
        allowed = {pattern for pattern, rule in rules if rule.allowed & wanted}
        denied = {pattern for pattern, rule in rules if rule.denied & wanted}
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied or everything in allowed:
            return everything not in denied

        def is_dominated(name: str) -> bool:
            return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))

        return any(not is_dominated(pattern[1]) for pattern in allowed - denied)

    def count_decision(self) -> bool:
        """Count a decision that will be kept; False once, when all were dropped because they are too many."""
        if self.decisions >= MAX_DECISIONS:
            self._forget()
            return False
        self.decisions += 1
        return True

    def _forget(self) -> None:
        self.decisions = 0
        for access in list(self._accesses.values()):
            access.forget()


def _with_implied(allowed: int) -> int:
    if allowed & _ALL_BIT:
        return EVERYTHING
    if allowed & _IMPLY_DESCRIBE:
        allowed |= _DESCRIBE
    if allowed & _ALTER_CONFIGS:
        allowed |= _DESCRIBE_CONFIGS
    return allowed
