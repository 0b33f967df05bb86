"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Declarations only. Source: the JSON definitions of the same names (KIP-140, KIP-290, KIP-373). Version 0 has
no types of patterns; Kafka 4 does not serve it.
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_LITERAL = 3
_ENTRY = (
    Field("principal", "string", "0+"),
    Field("host", "string", "0+"),
    Field("operation", "int8", "0+"),
    Field("permission_type", "int8", "0+"),
)
_FILTER = (
    Field("resource_type_filter", "int8", "0+"),
    Field("resource_name_filter", "string", "0+", nullable="0+"),
    Field("pattern_type_filter", "int8", "1+", default=_LITERAL),
    Field("principal_filter", "string", "0+", nullable="0+"),
    Field("host_filter", "string", "0+", nullable="0+"),
    Field("operation", "int8", "0+"),
    Field("permission_type", "int8", "0+"),
)
CREATE_ACLS_REQUEST = message(
    "CreateAclsRequest",
    "2+",
    structs(
        "creations",
        "0+",
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        Field("resource_pattern_type", "int8", "1+", default=_LITERAL),
        *_ENTRY,
    ),
)

CREATE_ACLS_RESPONSE = message(
    "CreateAclsResponse", "2+", Field("throttle_time_ms", "int32", "0+"), structs("results", "0+", *ERROR)
)

DESCRIBE_ACLS_REQUEST = message("DescribeAclsRequest", "2+", *_FILTER)

DESCRIBE_ACLS_RESPONSE = message(
    "DescribeAclsResponse",
    "2+",
    Field("throttle_time_ms", "int32", "0+"),
    *ERROR,
    structs(
        "resources",
        "0+",
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        Field("pattern_type", "int8", "1+", default=_LITERAL),
        structs("acls", "0+", *_ENTRY),
    ),
)

DELETE_ACLS_REQUEST = message("DeleteAclsRequest", "2+", structs("filters", "0+", *_FILTER))

DELETE_ACLS_RESPONSE = message(
    "DeleteAclsResponse",
    "2+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "filter_results",
        "0+",
        *ERROR,
        structs(
            "matching_acls",
            "0+",
            *ERROR,
            Field("resource_type", "int8", "0+"),
            Field("resource_name", "string", "0+"),
            Field("pattern_type", "int8", "1+", default=_LITERAL),
            *_ENTRY,
        ),
    ),
)
