"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that can authenticate.

Declarations only. Source: the JSON definitions of the same names (KIP-554).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_THROTTLE = Field("throttle_time_ms", "int32", "0+")
_NAME_AND_MECHANISM = (Field("name", "string", "0+"), Field("mechanism", "int8", "0+"))

DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = message(
    "DescribeUserScramCredentialsRequest",
    "0+",
    structs("users", "0+", Field("name", "string", "0+"), nullable="0+"),
)

DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = message(
    "DescribeUserScramCredentialsResponse",
    "0+",
    _THROTTLE,
    *ERROR,
    structs(
        "results",
        "0+",
        Field("user", "string", "0+"),
        *ERROR,
        structs(
            "credential_infos", "0+", Field("mechanism", "int8", "0+"), Field("iterations", "int32", "0+")
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_REQUEST = message(
    "AlterUserScramCredentialsRequest",
    "0+",
    structs("deletions", "0+", *_NAME_AND_MECHANISM),
    structs(
        "upsertions",
        "0+",
        *_NAME_AND_MECHANISM,
        Field("iterations", "int32", "0+"),
        Field("salt", "bytes", "0+"),
        Field("salted_password", "bytes", "0+"),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = message(
    "AlterUserScramCredentialsResponse",
    "0+",
    _THROTTLE,
    structs("results", "0+", Field("user", "string", "0+"), *ERROR),
)
