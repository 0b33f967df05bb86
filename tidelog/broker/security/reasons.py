"""Why the authorizer allows or refuses an operation: the rule that decided, and the ACL by its name.

Owns the words for it. Invariants: pure; the decision is the authorizer's own, and the reason is looked up for
it, so the two cannot differ; it takes as long as a decision, however many ACLs there are.

Source: Kafka's StandardAuthorizerData, whose audit log names the matching rule.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acls import Acl, Operation, Permission, ResourceType

_IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Reason(NamedTuple):
    """Whether an operation is allowed, why in one sentence, and the ACL that decided; None: no ACL did."""

    is_allowed: bool
    text: str
    acl: Acl | None = None


def reason(
    authorizer: Authorizer | None,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> Reason:
    """Why `principal` (Type:name) may do this from `host`, or not. `authorizer` None: none is configured."""
    if authorizer is None:
        return Reason(True, "No authorizer is configured, so everyone may do everything.")
    access = authorizer.access(principal, host)
    is_allowed = access.may(operation, resource_type, name)
    if access.is_super:
        return Reason(is_allowed, f"{principal} is one of super.users, who may do everything.")
    acls = access.acls_on(resource_type, name)
    deciding = _first(acls, Permission.ALLOW if is_allowed else Permission.DENY, operation)
    if deciding is not None:
        verb = "allows" if is_allowed else "denies"
        implied = "" if deciding.operation == operation else f", which includes {operation.name}"
        return Reason(is_allowed, f"An ACL {verb} {deciding.operation.name}{implied}.", deciding)
    resource = described(resource_type, name)
    if next(authorizer.principals_on(resource_type, name), None) is None:
        rule = "true" if is_allowed else "false"
        text = f"No ACL is about {resource}, and allow.everyone.if.no.acl.found is {rule}."
    elif acls:
        text = f"None of the ACLs that {principal} has on {resource} from {host} allows {operation.name}."
    else:
        text = f"There are ACLs on {resource}, but none names {principal} or User:* from {host}."
    return Reason(is_allowed, text)


def described(resource_type: ResourceType, name: str) -> str:
    """A resource in words."""
    if resource_type == ResourceType.CLUSTER:
        return "the cluster"
    return f"{resource_type.name.lower().replace('_', ' ')} {name}"


def _first(acls: Iterable[Acl], permission: Permission, operation: Operation) -> Acl | None:
    """The ACL that gives this permission most directly."""
    wanted: tuple[Operation, ...] = (operation, Operation.ALL)
    if permission == Permission.ALLOW:
        wanted += _IMPLIED_BY.get(operation, ())
    found = [acl for acl in acls if acl.permission == permission and acl.operation in wanted]
    return min(found, key=lambda acl: (wanted.index(acl.operation), acl.pattern_type), default=None)
