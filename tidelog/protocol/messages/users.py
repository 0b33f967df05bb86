"""SaslHandshake and SaslAuthenticate, and the APIs of the users that can authenticate with SCRAM.

Declarations only. Source: the JSON definitions of the same names (KIP-43, KIP-152, KIP-368, KIP-554).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Int64, Struct, field


class SaslHandshakeRequest(Struct, flexible="2+"):
    mechanism: str  # For example SCRAM-SHA-256.


class SaslHandshakeResponse(Struct, flexible="2+"):
    error_code: Int16
    mechanisms: list[str]  # Those that the listener has.


class SaslAuthenticateRequest(Struct, flexible="2+"):
    auth_bytes: bytes  # The next message of the mechanism.


class SaslAuthenticateResponse(Struct, flexible="2+"):
    error_code: Int16
    error_message: str | None
    auth_bytes: bytes  # The next message of the mechanism.
    session_lifetime_ms: Int64 = field("1+", ignorable=True)  # Authenticate again by then; 0: no end.


class DescribeUserScramCredentialsRequestUser(Struct):
    name: str


class DescribeUserScramCredentialsRequest(Struct, flexible="0+"):
    users: list[DescribeUserScramCredentialsRequestUser] | None  # Null or empty: all users.


class DescribeUserScramCredentialsResponseCredentialInfo(Struct):
    mechanism: Int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    iterations: Int32  # How often the password is hashed.


class DescribeUserScramCredentialsResponseResult(Struct):
    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: list[DescribeUserScramCredentialsResponseCredentialInfo]


class DescribeUserScramCredentialsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponseResult]


class AlterUserScramCredentialsRequestDeletion(Struct):
    name: str
    mechanism: Int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.


class AlterUserScramCredentialsRequestUpsertion(Struct):
    name: str
    mechanism: Int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    iterations: Int32  # How often the password is hashed.
    salt: bytes  # Random bytes that the client chose.
    salted_password: bytes  # What the iterations make of password and salt.


class AlterUserScramCredentialsRequest(Struct, flexible="0+"):
    deletions: list[AlterUserScramCredentialsRequestDeletion]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsResponseResult(Struct):
    user: str
    error_code: Int16
    error_message: str | None


class AlterUserScramCredentialsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResponseResult]
