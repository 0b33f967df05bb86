"""FindCoordinator: which broker serves a group or a transactional id.

Declarations only. Source: the JSON definitions of the same names (KIP-98, KIP-699). Unlike there, every field
of the response is ignorable. It has two layouts: one coordinator up to version 3, a list of them from version
4. A handler fills both.
"""

from tidelog.protocol.messages.declaration import Field, message, structs

FIND_COORDINATOR_REQUEST = message(
    "FindCoordinatorRequest",
    "3+",
    Field("key", "string", "0-3"),
    Field("key_type", "int8", "1+", default=0),
    Field("coordinator_keys", "[]string", "4+"),
)

FIND_COORDINATOR_RESPONSE = message(
    "FindCoordinatorResponse",
    "3+",
    Field("throttle_time_ms", "int32", "1+", ignorable=True),
    Field("error_code", "int16", "0-3", ignorable=True),
    Field("error_message", "string", "1-3", nullable="1-3", ignorable=True),
    Field("node_id", "int32", "0-3", ignorable=True),
    Field("host", "string", "0-3", ignorable=True),
    Field("port", "int32", "0-3", ignorable=True),
    structs(
        "coordinators",
        Field("key", "string", "4+"),
        Field("node_id", "int32", "4+"),
        Field("host", "string", "4+"),
        Field("port", "int32", "4+"),
        Field("error_code", "int16", "4+"),
        Field("error_message", "string", "4+", nullable="4+", ignorable=True),
        ignorable=True,
        versions="4+",
    ),
)
