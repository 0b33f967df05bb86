"""SaslHandshake and SaslAuthenticate: the authentication of a client.

Declarations only. Source: the JSON definitions of the same names (KIP-43, KIP-152, KIP-368).
"""

from tidelog.protocol.messages.declaration import Int16, Int64, Struct, field


class SaslHandshakeRequest(Struct, flexible="2+"):
    mechanism: str


class SaslHandshakeResponse(Struct, flexible="2+"):
    error_code: Int16
    mechanisms: list[str]


class SaslAuthenticateRequest(Struct, flexible="2+"):
    auth_bytes: bytes


class SaslAuthenticateResponse(Struct, flexible="2+"):
    error_code: Int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = field("1+", ignorable=True)
