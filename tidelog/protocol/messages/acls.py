"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Declarations only. Source: the JSON definitions of the same names (KIP-140, KIP-290, KIP-373).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_LITERAL = 3
_ENTRY = (
    Field("principal", "string"),
    Field("host", "string"),
    Field("operation", "int8"),
    Field("permission_type", "int8"),
)
_FILTER = (
    Field("resource_type_filter", "int8"),
    Field("resource_name_filter", "string", nullable="0+"),
    Field("pattern_type_filter", "int8", "1+", default=_LITERAL),
    Field("principal_filter", "string", nullable="0+"),
    Field("host_filter", "string", nullable="0+"),
    Field("operation", "int8"),
    Field("permission_type", "int8"),
)
CREATE_ACLS_REQUEST = message(
    "CreateAclsRequest",
    "2+",
    structs(
        "creations",
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("resource_pattern_type", "int8", "1+", default=_LITERAL),
        *_ENTRY,
    ),
)

CREATE_ACLS_RESPONSE = message(
    "CreateAclsResponse", "2+", Field("throttle_time_ms", "int32"), structs("results", *ERROR)
)

DESCRIBE_ACLS_REQUEST = message("DescribeAclsRequest", "2+", *_FILTER)

DESCRIBE_ACLS_RESPONSE = message(
    "DescribeAclsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    *ERROR,
    structs(
        "resources",
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("pattern_type", "int8", "1+", default=_LITERAL),
        structs("acls", *_ENTRY),
    ),
)

DELETE_ACLS_REQUEST = message("DeleteAclsRequest", "2+", structs("filters", *_FILTER))

DELETE_ACLS_RESPONSE = message(
    "DeleteAclsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    structs(
        "filter_results",
        *ERROR,
        structs(
            "matching_acls",
            *ERROR,
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8", "1+", default=_LITERAL),
            *_ENTRY,
        ),
    ),
)
