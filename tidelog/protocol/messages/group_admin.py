"""DescribeGroups, ListGroups and DeleteGroups: APIs to administrate groups.

Declarations only. Source: the JSON definitions of the same names (KIP-430, KIP-518, KIP-848,
KIP-1043).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

DESCRIBE_GROUPS_REQUEST = message(
    "DescribeGroupsRequest",
    "5+",
    Field("groups", "[]string"),
    Field("include_authorized_operations", "bool", "3+"),
)

DESCRIBE_GROUPS_RESPONSE = message(
    "DescribeGroupsResponse",
    "5+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    structs(
        "groups",
        Field("error_code", "int16"),
        Field("error_message", "string", "6+", nullable="6+", default=None),
        Field("group_id", "string"),
        Field("group_state", "string"),
        Field("protocol_type", "string"),
        Field("protocol_data", "string"),
        structs(
            "members",
            Field("member_id", "string"),
            Field("group_instance_id", "string", "4+", nullable="4+", default=None, ignorable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("member_metadata", "bytes"),
            Field("member_assignment", "bytes"),
        ),
        Field("authorized_operations", "int32", "3+", default=-2147483648),
    ),
)

LIST_GROUPS_REQUEST = message(
    "ListGroupsRequest",
    "3+",
    Field("states_filter", "[]string", "4+"),
    Field("types_filter", "[]string", "5+"),
)

LIST_GROUPS_RESPONSE = message(
    "ListGroupsResponse",
    "3+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16"),
    structs(
        "groups",
        Field("group_id", "string"),
        Field("protocol_type", "string"),
        Field("group_state", "string", "4+", ignorable=True),
        Field("group_type", "string", "5+", ignorable=True),
    ),
)

DELETE_GROUPS_REQUEST = message("DeleteGroupsRequest", "2+", Field("groups_names", "[]string"))

DELETE_GROUPS_RESPONSE = message(
    "DeleteGroupsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    structs("results", Field("group_id", "string"), Field("error_code", "int16")),
)
