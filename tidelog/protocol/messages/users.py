"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that can authenticate.

Declarations only. Source: the JSON definitions of the same names (KIP-554).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

_THROTTLE = Field("throttle_time_ms", "int32")
_NAME_AND_MECHANISM = (Field("name", "string"), Field("mechanism", "int8"))

DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = message(
    "DescribeUserScramCredentialsRequest", "0+", structs("users", Field("name", "string"), nullable="0+")
)

DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = message(
    "DescribeUserScramCredentialsResponse",
    "0+",
    _THROTTLE,
    *ERROR,
    structs(
        "results",
        Field("user", "string"),
        *ERROR,
        structs("credential_infos", Field("mechanism", "int8"), Field("iterations", "int32")),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_REQUEST = message(
    "AlterUserScramCredentialsRequest",
    "0+",
    structs("deletions", *_NAME_AND_MECHANISM),
    structs(
        "upsertions",
        *_NAME_AND_MECHANISM,
        Field("iterations", "int32"),
        Field("salt", "bytes"),
        Field("salted_password", "bytes"),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = message(
    "AlterUserScramCredentialsResponse", "0+", _THROTTLE, structs("results", Field("user", "string"), *ERROR)
)
