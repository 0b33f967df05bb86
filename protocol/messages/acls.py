"""CreateAcls, DescribeAcls and DeleteAcls: access control entries.

Declarations only. Source: the JSON definitions of the same names (KIP-140, KIP-290, KIP-373). Version 0 has
no types of patterns; Kafka 4 does not serve it.
"""

from tidelog.protocol.messages.declaration import Field, Message

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
_RESULT = (
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "0+", nullable="0+"),
)

CREATE_ACLS_REQUEST = Message(
    "CreateAclsRequest",
    flexible="2+",
    fields=(
        Field(
            "creations",
            "[]struct",
            "0+",
            fields=(
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field("resource_pattern_type", "int8", "1+", default=_LITERAL),
                *_ENTRY,
            ),
        ),
    ),
)

CREATE_ACLS_RESPONSE = Message(
    "CreateAclsResponse",
    flexible="2+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("results", "[]struct", "0+", fields=_RESULT),
    ),
)

DESCRIBE_ACLS_REQUEST = Message("DescribeAclsRequest", flexible="2+", fields=_FILTER)

DESCRIBE_ACLS_RESPONSE = Message(
    "DescribeAclsResponse",
    flexible="2+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        *_RESULT,
        Field(
            "resources",
            "[]struct",
            "0+",
            fields=(
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field("pattern_type", "int8", "1+", default=_LITERAL),
                Field("acls", "[]struct", "0+", fields=_ENTRY),
            ),
        ),
    ),
)

DELETE_ACLS_REQUEST = Message(
    "DeleteAclsRequest",
    flexible="2+",
    fields=(Field("filters", "[]struct", "0+", fields=_FILTER),),
)

DELETE_ACLS_RESPONSE = Message(
    "DeleteAclsResponse",
    flexible="2+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field(
            "filter_results",
            "[]struct",
            "0+",
            fields=(
                *_RESULT,
                Field(
                    "matching_acls",
                    "[]struct",
                    "0+",
                    fields=(
                        *_RESULT,
                        Field("resource_type", "int8", "0+"),
                        Field("resource_name", "string", "0+"),
                        Field("pattern_type", "int8", "1+", default=_LITERAL),
                        *_ENTRY,
                    ),
                ),
            ),
        ),
    ),
)
