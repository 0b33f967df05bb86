"""Access control entries (ACLs): who may do what with which resource, as values that both sides share.

Owns the numbers of resource types, pattern types, operations and permissions, and how a filter selects ACLs.

Invariants: pure; an `Acl` says LITERAL or PREFIXED, ALLOW or DENY and one operation or ALL; only an
`AclFilter` says ANY or MATCH, and None in it stands for all values.

Source: KIP-140 (the APIs), KIP-290 (patterns), KIP-373 (users), KIP-939 (TWO_PHASE_COMMIT); Kafka's
org.apache.kafka.common.acl and org.apache.kafka.common.resource.
"""

from enum import IntEnum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""As a literal resource name: all resources of the type. As a host: all hosts."""
EVERY_USER: Final = "User:*"
"""The principal that stands for all users, also those without authentication (User:ANONYMOUS)."""


class ResourceType(IntEnum):
    """What an ACL is about. Delegation tokens are not served."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is compared with that of an ACL."""

    ANY = 1
    MATCH = 2
    """Of a filter: all patterns that match the name of a resource."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done with a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What an ACL does to an operation."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry: `principal` (Type:name) may, or may not, do `operation` from `host` with the resources that
    the pattern names."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Which ACLs are meant. The default is all of them."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether this filter selects `acl`."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)
