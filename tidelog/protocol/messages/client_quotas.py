"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Declarations only. Source: the JSON definitions of the same names (KIP-546), whose field "values" is "quotas"
here, because decoded structs have a method of that name.
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_ENTITY = structs("entity", Field("entity_type", "string"), Field("entity_name", "string", nullable="0+"))
DESCRIBE_CLIENT_QUOTAS_REQUEST = message(
    "DescribeClientQuotasRequest",
    "1+",
    structs(
        "components",
        Field("entity_type", "string"),
        Field("match_type", "int8"),
        Field("match", "string", nullable="0+"),
    ),
    Field("strict", "bool"),
)

DESCRIBE_CLIENT_QUOTAS_RESPONSE = message(
    "DescribeClientQuotasResponse",
    "1+",
    Field("throttle_time_ms", "int32"),
    *ERROR,
    structs(
        "entries",
        _ENTITY,
        structs("quotas", Field("key", "string"), Field("value", "float64")),
        nullable="0+",
    ),
)

ALTER_CLIENT_QUOTAS_REQUEST = message(
    "AlterClientQuotasRequest",
    "1+",
    structs(
        "entries",
        _ENTITY,
        structs("ops", Field("key", "string"), Field("value", "float64"), Field("remove", "bool")),
    ),
    Field("validate_only", "bool"),
)

ALTER_CLIENT_QUOTAS_RESPONSE = message(
    "AlterClientQuotasResponse", "1+", Field("throttle_time_ms", "int32"), structs("entries", *ERROR, _ENTITY)
)
