"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Declarations only. Source: the JSON definitions of the same names (KIP-140, KIP-290, KIP-373).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field


class CreateAclsRequestCreation(Struct):
    resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id.
    resource_name: str  # * stands for all names; the cluster is kafka-cluster.
    resource_pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    principal: str  # The user, for example User:alice; User:* stands for all.
    host: str  # The address of the client; * stands for all.
    operation: Int8  # A number of `protocol.acls.Operation`; 2: all of them.
    permission_type: Int8  # 2: deny, 3: allow.


class CreateAclsRequest(Struct, flexible="2+"):
    creations: list[CreateAclsRequestCreation]  # At most 10,000; each succeeds or fails alone.


class CreateAclsResponseResult(Struct):
    error_code: Int16
    error_message: str | None


class CreateAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[CreateAclsResponseResult]  # In the order of the creations.


class DescribeAclsRequest(Struct, flexible="2+"):
    resource_type_filter: Int8  # 1: any, 2: topic, 3: group, 4: cluster, 5: transactional id.
    resource_name_filter: str | None  # Null: any.
    pattern_type_filter: Int8 = field("1+", default=3)  # 1: any, 2: all that match, 3: literal, 4: prefixed.
    principal_filter: str | None  # Null: any.
    host_filter: str | None  # Null: any.
    operation: Int8  # A number of `protocol.acls.Operation`; 1: any.
    permission_type: Int8  # 1: any, 2: deny, 3: allow.


class DescribeAclsResponseAcl(Struct):
    principal: str  # The user, for example User:alice; User:* stands for all.
    host: str  # The address of the client; * stands for all.
    operation: Int8  # A number of `protocol.acls.Operation`; 2: all of them.
    permission_type: Int8  # 2: deny, 3: allow.


class DescribeAclsResponseResource(Struct):
    resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id.
    resource_name: str  # * stands for all names; the cluster is kafka-cluster.
    pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    acls: list[DescribeAclsResponseAcl]


class DescribeAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    resources: list[DescribeAclsResponseResource]  # Each with the entries that the filter selects.


class DeleteAclsRequestFilter(Struct):
    resource_type_filter: Int8  # 1: any, 2: topic, 3: group, 4: cluster, 5: transactional id.
    resource_name_filter: str | None  # Null: any.
    pattern_type_filter: Int8 = field("1+", default=3)  # 1: any, 2: all that match, 3: literal, 4: prefixed.
    principal_filter: str | None  # Null: any.
    host_filter: str | None  # Null: any.
    operation: Int8  # A number of `protocol.acls.Operation`; 1: any.
    permission_type: Int8  # 1: any, 2: deny, 3: allow.


class DeleteAclsRequest(Struct, flexible="2+"):
    filters: list[DeleteAclsRequestFilter]  # At most 10,000; each succeeds or fails alone.


class DeleteAclsResponseMatchingAcl(Struct):
    error_code: Int16  # Always 0: all are deleted or none.
    error_message: str | None
    resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id.
    resource_name: str  # * stands for all names; the cluster is kafka-cluster.
    pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    principal: str  # The user, for example User:alice; User:* stands for all.
    host: str  # The address of the client; * stands for all.
    operation: Int8  # A number of `protocol.acls.Operation`; 2: all of them.
    permission_type: Int8  # 2: deny, 3: allow.


class DeleteAclsResponseFilterResult(Struct):
    error_code: Int16
    error_message: str | None
    matching_acls: list[DeleteAclsResponseMatchingAcl]  # The entries that were deleted.


class DeleteAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    filter_results: list[DeleteAclsResponseFilterResult]  # In the order of the filters.
