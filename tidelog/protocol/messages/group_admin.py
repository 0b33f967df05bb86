"""DescribeGroups, ListGroups and DeleteGroups: APIs to administrate groups.

Declarations only. Source: the JSON definitions of the same names (KIP-430, KIP-518, KIP-848,
KIP-1043).
"""

from tidelog.protocol.messages.declaration import Int16, Int32, Struct, field


class DescribeGroupsRequest(Struct, flexible="5+"):
    groups: list[str]
    include_authorized_operations: bool = field("3+")  # Whether to say what the user may do.


class DescribeGroupsResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = field("4+", default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupsResponseGroup(Struct):
    error_code: Int16
    error_message: str | None = field("6+", default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribeGroupsResponseMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribeGroupsResponse(Struct, flexible="5+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribeGroupsResponseGroup]


class ListGroupsRequest(Struct, flexible="3+"):
    states_filter: list[str] = field("4+")
    types_filter: list[str] = field("5+")


class ListGroupsResponseGroup(Struct):
    group_id: str
    protocol_type: str
    group_state: str = field("4+", ignorable=True)
    group_type: str = field("5+", ignorable=True)


class ListGroupsResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16
    groups: list[ListGroupsResponseGroup]


class DeleteGroupsRequest(Struct, flexible="2+"):
    groups_names: list[str]


class DeleteGroupsResponseResult(Struct):
    group_id: str
    error_code: Int16


class DeleteGroupsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeleteGroupsResponseResult]
