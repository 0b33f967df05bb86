"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Declarations only. Source: the JSON definitions of the same names (KIP-546), whose field "values" is "quotas"
here, because decoded structs have a method of that name.
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_ENTITY = structs(
    "entity", "0+", Field("entity_type", "string", "0+"), Field("entity_name", "string", "0+", nullable="0+")
)
DESCRIBE_CLIENT_QUOTAS_REQUEST = message(
    "DescribeClientQuotasRequest",
    "1+",
    structs(
        "components",
        "0+",
        Field("entity_type", "string", "0+"),
        Field("match_type", "int8", "0+"),
        Field("match", "string", "0+", nullable="0+"),
    ),
    Field("strict", "bool", "0+"),
)

DESCRIBE_CLIENT_QUOTAS_RESPONSE = message(
    "DescribeClientQuotasResponse",
    "1+",
    Field("throttle_time_ms", "int32", "0+"),
    *ERROR,
    structs(
        "entries",
        "0+",
        _ENTITY,
        structs("quotas", "0+", Field("key", "string", "0+"), Field("value", "float64", "0+")),
        nullable="0+",
    ),
)

ALTER_CLIENT_QUOTAS_REQUEST = message(
    "AlterClientQuotasRequest",
    "1+",
    structs(
        "entries",
        "0+",
        _ENTITY,
        structs(
            "ops",
            "0+",
            Field("key", "string", "0+"),
            Field("value", "float64", "0+"),
            Field("remove", "bool", "0+"),
        ),
    ),
    Field("validate_only", "bool", "0+"),
)

ALTER_CLIENT_QUOTAS_RESPONSE = message(
    "AlterClientQuotasResponse",
    "1+",
    Field("throttle_time_ms", "int32", "0+"),
    structs("entries", "0+", *ERROR, _ENTITY),
)
