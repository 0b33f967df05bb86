"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that can authenticate.

Declarations only. Source: the JSON definitions of the same names (KIP-554).
"""

from tidelog.protocol.messages.declaration import Field, Message

_THROTTLE = Field("throttle_time_ms", "int32", "0+")
_ERROR = (Field("error_code", "int16", "0+"), Field("error_message", "string", "0+", nullable="0+"))
_NAME_AND_MECHANISM = (Field("name", "string", "0+"), Field("mechanism", "int8", "0+"))

DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    "DescribeUserScramCredentialsRequest",
    flexible="0+",
    fields=(Field("users", "[]struct", "0+", nullable="0+", fields=(Field("name", "string", "0+"),)),),
)

DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    "DescribeUserScramCredentialsResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        *_ERROR,
        Field(
            "results",
            "[]struct",
            "0+",
            fields=(
                Field("user", "string", "0+"),
                *_ERROR,
                Field(
                    "credential_infos",
                    "[]struct",
                    "0+",
                    fields=(Field("mechanism", "int8", "0+"), Field("iterations", "int32", "0+")),
                ),
            ),
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    "AlterUserScramCredentialsRequest",
    flexible="0+",
    fields=(
        Field("deletions", "[]struct", "0+", fields=_NAME_AND_MECHANISM),
        Field(
            "upsertions",
            "[]struct",
            "0+",
            fields=(
                *_NAME_AND_MECHANISM,
                Field("iterations", "int32", "0+"),
                Field("salt", "bytes", "0+"),
                Field("salted_password", "bytes", "0+"),
            ),
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    "AlterUserScramCredentialsResponse",
    flexible="0+",
    fields=(
        _THROTTLE,
        Field("results", "[]struct", "0+", fields=(Field("user", "string", "0+"), *_ERROR)),
    ),
)
