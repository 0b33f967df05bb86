"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Declarations only. Source: the JSON definitions of the same names (KIP-546), whose field "values" is "quotas"
here, because decoded structs have a method of that name.
"""

from tidelog.protocol.messages.declaration import Field, Message

_ENTITY = Field(
    "entity",
    "[]struct",
    "0+",
    fields=(
        Field("entity_type", "string", "0+"),
        Field("entity_name", "string", "0+", nullable="0+"),
    ),
)
_RESULT = (
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "0+", nullable="0+"),
)

DESCRIBE_CLIENT_QUOTAS_REQUEST = Message(
    "DescribeClientQuotasRequest",
    flexible="1+",
    fields=(
        Field(
            "components",
            "[]struct",
            "0+",
            fields=(
                Field("entity_type", "string", "0+"),
                Field("match_type", "int8", "0+"),
                Field("match", "string", "0+", nullable="0+"),
            ),
        ),
        Field("strict", "bool", "0+"),
    ),
)

DESCRIBE_CLIENT_QUOTAS_RESPONSE = Message(
    "DescribeClientQuotasResponse",
    flexible="1+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        *_RESULT,
        Field(
            "entries",
            "[]struct",
            "0+",
            nullable="0+",
            fields=(
                _ENTITY,
                Field(
                    "quotas",
                    "[]struct",
                    "0+",
                    fields=(Field("key", "string", "0+"), Field("value", "float64", "0+")),
                ),
            ),
        ),
    ),
)

ALTER_CLIENT_QUOTAS_REQUEST = Message(
    "AlterClientQuotasRequest",
    flexible="1+",
    fields=(
        Field(
            "entries",
            "[]struct",
            "0+",
            fields=(
                _ENTITY,
                Field(
                    "ops",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("key", "string", "0+"),
                        Field("value", "float64", "0+"),
                        Field("remove", "bool", "0+"),
                    ),
                ),
            ),
        ),
        Field("validate_only", "bool", "0+"),
    ),
)

ALTER_CLIENT_QUOTAS_RESPONSE = Message(
    "AlterClientQuotasResponse",
    flexible="1+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("entries", "[]struct", "0+", fields=(*_RESULT, _ENTITY)),
    ),
)
