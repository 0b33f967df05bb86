"""Administration of access control entries: who may do what.

Owns the requests of `Admin.acls`. Invariants: a call does everything that was requested, or it raises; then
some of it may have been done, and the call may be repeated.
Source: KIP-140, KIP-290.
"""

from collections.abc import Iterable
from functools import partial

from tidelog.client.admin.requests import Requests, itself
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey

_ANY_ACL = AclFilter()


class AclAdmin:
    """The ACLs of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._ask = partial(requests.to_any, name=lambda _: "ACLs")

    async def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; existing ones do not change."""
        creations: list[DictOf[types.CreateAclsRequestCreation]] = [
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.resource_name,
                "resource_pattern_type": acl.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in acls
        ]
        await self._ask(ApiKey.CREATE_ACLS, {"creations": creations}, lambda answer: answer.results)

    async def delete(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Delete the ACLs that one of the filters selects. Returns them."""
        answer: types.DeleteAclsResponse = await self._ask(
            ApiKey.DELETE_ACLS, {"filters": list(map(_filter, filters))}, lambda answer: answer.filter_results
        )
        deleted = [
            _acl(found.resource_type, found.pattern_type, found.resource_name, found)
            for result in answer.filter_results
            for found in result.matching_acls
        ]
        return list(dict.fromkeys(deleted))

    async def list(self, wanted: AclFilter = _ANY_ACL) -> list[Acl]:
        """The ACLs that the filter selects."""
        answer: types.DescribeAclsResponse = await self._ask(ApiKey.DESCRIBE_ACLS, _filter(wanted), itself)
        return [
            _acl(found.resource_type, found.pattern_type, found.resource_name, entry)
            for found in answer.resources
            for entry in found.acls
        ]


def _filter(wanted: AclFilter) -> "DictOf[types.DescribeAclsRequest]":
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(
    resource_type: int,
    pattern_type: int,
    name: str,
    entry: "types.DescribeAclsResponseAcl | types.DeleteAclsResponseMatchingAcl",
) -> Acl:
    return Acl(
        ResourceType(resource_type),
        PatternType(pattern_type),
        name,
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )
