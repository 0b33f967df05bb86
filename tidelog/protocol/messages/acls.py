"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Declarations only. Source: the JSON definitions of the same names (KIP-140, KIP-290, KIP-373).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field


class CreateAclsRequestCreation(Struct):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    principal: str  # The user, for example User:alice.
    host: str
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow.


class CreateAclsRequest(Struct, flexible="2+"):
    creations: list[CreateAclsRequestCreation]


class CreateAclsResponseResult(Struct):
    error_code: Int16
    error_message: str | None


class CreateAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[CreateAclsResponseResult]


class DescribeAclsRequest(Struct, flexible="2+"):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow.


class DescribeAclsResponseAcl(Struct):
    principal: str  # The user, for example User:alice.
    host: str
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow.


class DescribeAclsResponseResource(Struct):
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    acls: list[DescribeAclsResponseAcl]


class DescribeAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    resources: list[DescribeAclsResponseResource]


class DeleteAclsRequestFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow.


class DeleteAclsRequest(Struct, flexible="2+"):
    filters: list[DeleteAclsRequestFilter]


class DeleteAclsResponseMatchingAcl(Struct):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = field("1+", default=3)  # 3: literal, 4: prefixed.
    principal: str  # The user, for example User:alice.
    host: str
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow.


class DeleteAclsResponseFilterResult(Struct):
    error_code: Int16
    error_message: str | None
    matching_acls: list[DeleteAclsResponseMatchingAcl]


class DeleteAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    filter_results: list[DeleteAclsResponseFilterResult]
