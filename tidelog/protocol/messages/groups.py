"""FindCoordinator: which broker serves a group or a transactional id.

Declarations only. Source: the JSON definitions of the same names (KIP-98, KIP-699). Unlike there, every field
of the response is ignorable. It has two layouts: one coordinator up to version 3, a list of them from version
4. A handler fills both.
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field


class FindCoordinatorRequest(Struct, flexible="3+"):
    key: str = field("0-3")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[str] = field("4+")


class FindCoordinatorResponseCoordinator(Struct):
    key: str = field("4+")
    node_id: Int32 = field("4+")
    host: str = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: str | None = field("4+", ignorable=True)


class FindCoordinatorResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0-3", ignorable=True)
    error_message: str | None = field("1-3", ignorable=True)
    node_id: Int32 = field("0-3", ignorable=True)
    host: str = field("0-3", ignorable=True)
    port: Int32 = field("0-3", ignorable=True)
    coordinators: list[FindCoordinatorResponseCoordinator] = field("4+", ignorable=True)
